"""What a handler imports: the request it gets, the response it gives.

    from omni import InvalidRequest, Request, Response

    def load(context): ...                     # once per instance, optional
    def handle_request(request, context): ...  # once per request

docs/handlers.md is the guide; docs/contracts/tasks.md says what each task gets and gives.
"""

from omni.handler import Context, File, InvalidRequest, Request, Response

__all__ = ["Context", "File", "InvalidRequest", "Request", "Response"]
