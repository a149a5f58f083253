"""The real runtime in a process of its own, over a real socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import unittest
from typing import Any

from omni_runtime import protocol
from tests.client import Answer, Client, Runtime, anonymous_file


class RuntimeTest(unittest.TestCase):
    def run_handler(self, handler: str | None, **settings: Any) -> Runtime:
        runtime = Runtime(handler, **settings)
        self.addCleanup(runtime.stop)
        return runtime

    def connect(self, runtime: Runtime, **options: Any) -> Client:
        client = Client(runtime.path, **options)
        self.addCleanup(client.close)
        return client.wait_ready()

    def serve(self, handler: str, **settings: Any) -> Client:
        self.runtime = self.run_handler(handler, **settings)
        return self.connect(self.runtime)

    def assert_error(self, answer: Answer, code: str, *parts: str) -> None:
        self.assertIsNotNone(answer.error)
        assert answer.error is not None
        self.assertEqual(answer.error["code"], code)
        for part in parts:
            self.assertIn(part, answer.error["message"])


class Answers(RuntimeTest):
    def test_dict_is_one_json_item(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                return {"said": request["text"], "task": request.task, "id": request.id}
            """)
        answer = client.ask({"text": "héllo"}, task="chat")
        self.assertEqual(answer.items, [{"said": "héllo", "task": "chat", "id": "req-1"}])
        assert answer.head is not None
        self.assertEqual(answer.head["status"], 200)
        self.assertFalse(answer.head["streaming"])
        self.assertIsNone(answer.error)

    def test_text_bytes_numbers_and_lists(self) -> None:
        client = self.serve("""
            VALUES = {"text": "é", "bytes": b"\\x00\\xff", "array": bytearray(b"ab"), "list": [1, None],
                      "number": 0.5, "empty": "", "tuple": (1, 2)}
            def handle_request(request, context):
                return VALUES[request["kind"]]
            """)
        for kind, expected in [
            ("text", "é"),
            ("bytes", b"\x00\xff"),
            ("array", b"ab"),
            ("list", [1, None]),
            ("number", 0.5),
            ("empty", ""),
            ("tuple", [1, 2]),
        ]:
            self.assertEqual(client.ask({"kind": kind}).items, [expected], kind)

    def test_response_carries_status_headers_and_usage(self) -> None:
        client = self.serve("""
            from omni import Response
            def handle_request(request, context):
                return Response(b"RIFF", content_type="audio/wav", status=201,
                                headers={"X-Voice": "a"}, usage={"total_tokens": 3})
            """)
        answer = client.ask()
        self.assertEqual(
            answer.head,
            {
                "status": 201,
                "content_type": "audio/wav",
                "streaming": False,
                "headers": {"X-Voice": "a"},
            },
        )
        self.assertEqual(answer.items, [b"RIFF"])
        self.assertEqual(answer.trailer, {"usage": {"total_tokens": 3}})

    def test_generator_streams_mixed_items_and_usage_filled_meanwhile(self) -> None:
        client = self.serve("""
            from omni import Response
            def handle_request(request, context):
                usage = {}
                def parts():
                    yield "one"
                    yield {"two": 2}
                    yield b"three"
                    usage["completion_tokens"] = 3
                return Response(parts(), usage=usage)
            """)
        answer = client.ask(stream=True)
        self.assertEqual(answer.items, ["one", {"two": 2}, b"three"])
        assert answer.head is not None
        self.assertTrue(answer.head["streaming"])
        self.assertEqual(answer.trailer, {"usage": {"completion_tokens": 3}})

    def test_generator_without_items_is_an_empty_stream(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                return iter(())
            """)
        answer = client.ask()
        self.assertEqual(answer.items, [])
        assert answer.head is not None
        self.assertTrue(answer.head["streaming"])
        self.assertIsNone(answer.error)

    def test_items_come_as_they_are_yielded(self) -> None:
        client = self.serve(
            """
            import threading
            go = threading.Event()
            def handle_request(request, context):
                if request.get("go"):
                    go.set()
                    return "went"
                def parts():
                    yield "first"
                    go.wait()
                    yield "second"
                return parts()
            """,
            concurrency=2,
        )
        stream = client.open()
        self.assertEqual(client.wait_items(stream, 1), ["first"])
        client.ask({"go": True})
        self.assertEqual(client.wait(stream).items, ["first", "second"])

    def test_numpy_like_values_become_json(self) -> None:
        client = self.serve("""
            class Array:
                def __init__(self, value): self.value = value
                def tolist(self): return self.value
            def handle_request(request, context):
                return {"embeddings": Array([[0.5, 1.0]]), "score": Array(0.25)}
            """)
        self.assertEqual(client.ask().items, [{"embeddings": [[0.5, 1.0]], "score": 0.25}])

    def test_large_answers_arrive_whole(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                return bytes(range(256)) * (request["kib"] * 4)
            """)
        for kib in (63, 64, 65, 256, 3000):
            self.assertEqual(client.ask({"kib": kib}).items, [bytes(range(256)) * (kib * 4)])


class Requests(RuntimeTest):
    def test_raw_body_of_any_size(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                return {"size": len(request.body), "type": request.content_type, "last": request.body[-1:].hex()}
            """)
        for size in (0, 1, 65536, 1_000_000):
            body = b"\x07" * size
            answer = client.ask(body=body, content_type="image/png")
            self.assertEqual(
                answer.items, [{"size": size, "type": "image/png", "last": "07" if size else ""}]
            )

    def test_request_larger_than_a_frame(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                return {"count": len(request["input"]), "last": request["input"][-1]}
            """)
        texts = [f"sentence {n}" for n in range(50_000)]
        self.assertEqual(
            client.ask({"input": texts}).items, [{"count": 50_000, "last": "sentence 49999"}]
        )

    def test_files_are_seekable_and_named(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                file = request.file("file")
                data = file.read()
                file.seek(0)
                return {"same": file.read() == data, "data": data.decode(), "filename": file.filename,
                        "name": file.name, "type": file.content_type, "size": file.size,
                        "all": [f.field for f in request.files]}
            """)
        parts = [
            (
                {"name": "file", "filename": "a.wav", "content_type": "audio/wav", "size": 4},
                anonymous_file(b"RIFF"),
            ),
            ({"name": "mask", "filename": "", "content_type": "", "size": 1}, anonymous_file(b"m")),
        ]
        answer = client.ask(files=parts)
        for _, fd in parts:
            os.close(fd)
        self.assertEqual(
            answer.items,
            [
                {
                    "same": True,
                    "data": "RIFF",
                    "filename": "a.wav",
                    "name": "a.wav",
                    "type": "audio/wav",
                    "size": 4,
                    "all": ["file", "mask"],
                }
            ],
        )

    def test_spooled_raw_body_reads_like_a_held_one(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                return request.body[::-1]
            """)
        fd = anonymous_file(b"abc")
        stream = client.next_id
        client.next_id += 1
        client.answers[stream] = Answer()
        head = {"id": "x", "raw": True, "files": [{"name": "", "size": 3}]}
        client.send(protocol.REQUEST, stream, json.dumps(head).encode())
        client.send_fd(stream, fd)
        os.close(fd)
        client.send(protocol.END, stream)
        self.assertEqual(client.wait(stream).items, [b"cba"])

    def test_descriptors_are_closed_after_the_request(self) -> None:
        client = self.serve("""
            import os
            def handle_request(request, context):
                return len(os.listdir("/proc/self/fd"))
            """)
        counts = []
        for _ in range(3):
            fd = anonymous_file(b"x")
            counts.append(client.ask(files=[({"name": "file"}, fd)]).items[0])
            os.close(fd)
        self.assertEqual(counts[0], counts[2])

    def test_missing_parameter_and_missing_file_are_the_clients_error(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                return request.file() if request.get("file") else request["text"]
            """)
        answer = client.ask()
        self.assert_error(answer, "invalid_request", '"text" is required')
        assert answer.error is not None
        self.assertEqual(answer.error["param"], "text")
        self.assert_error(client.ask({"file": 1}), "invalid_request", '"file" is required')

    def test_deadline_follows_the_timeout(self) -> None:
        client = self.serve("""
            import time
            def handle_request(request, context):
                return None if request.deadline is None else request.deadline - time.monotonic()
            """)
        self.assertAlmostEqual(client.ask(timeout_ms=60_000).items[0], 60, delta=5)


class Errors(RuntimeTest):
    def test_exception_gives_type_and_message_and_keeps_the_traceback_in_the_log(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                raise KeyError("no such voice")
            """)
        answer = client.ask()
        self.assert_error(answer, "handler_failed", "KeyError", "no such voice")
        assert answer.error is not None
        self.assertNotIn("Traceback", answer.error["message"])
        self.assertIn("Traceback", self.runtime.log())
        self.assertIn("req-1", self.runtime.log())
        self.assertIsNone(answer.head)

    def test_sys_exit_in_a_request_is_its_failure_alone(self) -> None:
        client = self.serve("""
            import sys
            def handle_request(request, context):
                if request.get("exit"): sys.exit(3)
                return "alive"
            """)
        self.assert_error(client.ask({"exit": 1}), "handler_failed", "SystemExit")
        self.assertEqual(client.ask().items, ["alive"])

    def test_invalid_request_before_the_first_item_has_no_response(self) -> None:
        client = self.serve("""
            from omni import InvalidRequest
            def handle_request(request, context):
                raise InvalidRequest("temperature is too high", param="temperature")
                yield
            """)
        answer = client.ask()
        self.assert_error(answer, "invalid_request", "too high")
        self.assertIsNone(answer.head)

    def test_failure_in_mid_stream_follows_the_items(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                yield "a"
                raise ValueError("then not")
            """)
        answer = client.ask()
        self.assertEqual(answer.items, ["a"])
        self.assert_error(answer, "handler_failed", "ValueError: then not")

    def test_what_cannot_be_sent_is_named_with_its_place(self) -> None:
        client = self.serve("""
            import decimal
            VALUES = [None, {"a": [1, decimal.Decimal(1)]}, {"s": float("nan")}, {(1, 2): 3}, {"b": b"x"}, {1, 2},
                      "\\ud800", {"t": "\\udfff"}, [float("inf")]]
            def handle_request(request, context):
                return VALUES[request["n"]]
            """)
        expected = [
            ["None"],
            ["answer['a'][1]", "decimal.Decimal"],
            ["answer['s'] is nan"],
            ["key of type tuple"],
            ["answer['b']", "bytes"],
            ["a set"],
            ["U+D800"],
            ["answer['t']", "U+DFFF"],
            ["answer[0] is inf"],
        ]
        for n, parts in enumerate(expected):
            self.assert_error(client.ask({"n": n}), "handler_failed", *parts)

    def test_process_exit_breaks_the_connection(self) -> None:
        client = self.serve("""
            import os
            def handle_request(request, context):
                os._exit(7)
            """)
        with self.assertRaises(ConnectionError):
            client.ask()
        self.assertEqual(self.runtime.wait(), 7)


class Cancelling(RuntimeTest):
    GENERATOR = """
        import threading
        state = {"closed": threading.Event(), "cancelled": None}
        def handle_request(request, context):
            if request.get("state"):
                state["closed"].wait(10)
                return {"closed": state["closed"].is_set(), "cancelled": state["cancelled"]}
            def parts():
                try:
                    while True:
                        yield "x" * 1000
                except GeneratorExit:
                    state["cancelled"] = request.cancelled
                    state["closed"].set()
                    raise
            return parts()
        """

    def test_cancel_closes_the_generator(self) -> None:
        client = self.serve(self.GENERATOR, concurrency=2)
        stream = client.open()
        client.wait_items(stream, 1)
        client.send(protocol.CANCEL, stream)
        self.assert_error(client.wait(stream), "cancelled")
        self.assertEqual(client.ask({"state": 1}).items, [{"closed": True, "cancelled": True}])

    def test_cancel_reaches_a_generator_that_waits_for_credit(self) -> None:
        runtime = self.run_handler(self.GENERATOR, concurrency=2)
        client = self.connect(runtime, grant=False)
        stream = client.open()
        client.wait_items(stream, 250)
        client.send(protocol.CANCEL, stream)
        self.assert_error(client.wait(stream), "cancelled")

    def test_closed_connection_cancels_its_streams(self) -> None:
        client = self.serve(self.GENERATOR, concurrency=2)
        other = self.connect(self.runtime)
        client.wait_items(client.open(), 1)
        client.close()
        self.assertEqual(other.ask({"state": 1}).items, [{"closed": True, "cancelled": True}])

    def test_request_that_waits_is_cancelled_at_once_and_never_runs(self) -> None:
        client = self.serve("""
            import threading
            go, ran = threading.Event(), []
            def handle_request(request, context):
                ran.append(request["n"])
                if request.get("report"):
                    yield {"ran": ran}
                    return
                yield "started"
                while not request.cancelled: go.wait(0.01)
                yield "never sent"
            """)
        first = client.open({"n": 1})
        client.wait_items(first, 1)
        second = client.open({"n": 2})
        client.send(protocol.CANCEL, second)
        self.assert_error(client.wait(second), "cancelled")
        self.assertFalse(client.answers[first].ended)
        client.send(protocol.CANCEL, first)
        client.wait(first)
        third = client.open({"n": 3})
        client.wait_items(third, 1)
        client.send(protocol.CANCEL, third)
        client.wait(third)
        self.assertEqual(client.ask({"n": 4, "report": 1}).items, [{"ran": [1, 3, 4]}])

    def test_async_task_is_cancelled_where_it_awaits(self) -> None:
        client = self.serve(
            """
            import asyncio
            started, cancelled = asyncio.Event(), asyncio.Event()
            async def handle_request(request, context):
                if request.get("event"):
                    await asyncio.wait_for(globals()[request["event"]].wait(), 10)
                    return "seen"
                try:
                    started.set()
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise
            """,
            concurrency=2,
        )
        stream = client.open()
        self.assertEqual(client.ask({"event": "started"}).items, ["seen"])
        client.send(protocol.CANCEL, stream)
        self.assert_error(client.wait(stream), "cancelled")
        self.assertEqual(client.ask({"event": "cancelled"}).items, ["seen"])


class Flow(RuntimeTest):
    def test_answer_stops_at_its_credit_and_generator_with_it(self) -> None:
        runtime = self.run_handler(
            """
            import itertools
            made = 0
            def handle_request(request, context):
                global made
                if request.get("made"): return made
                def parts():
                    global made
                    for made in itertools.count(1):
                        if made > 1000: return
                        yield b"x" * 4080
                return parts()
            """,
            concurrency=2,
        )
        client = self.connect(runtime, grant=False)
        stream = client.open()
        client.wait_items(stream, 64)
        self.assertEqual(client.answers[stream].data_bytes, protocol.INITIAL_CREDIT)
        made = client.ask({"made": 1}).items[0]
        self.assertLessEqual(made, 66)
        client.give_credit(stream, 4096)
        self.assertEqual(len(client.wait_items(stream, 65)), 65)
        client.grant = True
        client.give_credit(stream, protocol.INITIAL_CREDIT)
        self.assertEqual(len(client.wait(stream).items), 1000)

    def test_large_answer_does_not_hold_up_a_small_one(self) -> None:
        runtime = self.run_handler(
            """
            def handle_request(request, context):
                return bytes(request["size"])
            """,
            concurrency=2,
        )
        client = self.connect(runtime, grant=False)
        large = client.open({"size": 5_000_000})
        small = client.open({"size": 3})
        self.assertEqual(client.wait(small).items, [b"\0\0\0"])
        self.assertFalse(client.answers[large].ended)
        client.grant = True
        client.give_credit(large, protocol.INITIAL_CREDIT)
        self.assertEqual(client.wait(large).items, [bytes(5_000_000)])

    def test_ping_is_answered_while_a_handler_computes(self) -> None:
        client = self.serve("""
            def handle_request(request, context):
                while not request.cancelled: pass
                return "stopped"
            """)
        stream = client.open()
        client.ping()
        second = self.connect(self.runtime)
        second.ping()
        self.assertFalse(client.answers[stream].ended)
        client.send(protocol.CANCEL, stream)
        self.assert_error(client.wait(stream), "cancelled")


class Concurrency(RuntimeTest):
    BARRIER = """
        import threading
        barrier = threading.Barrier(3, timeout=10)
        def handle_request(request, context):
            return {"n": barrier.wait() >= 0, "main": threading.current_thread() is threading.main_thread()}
        """

    def test_threads_run_at_once_up_to_concurrency(self) -> None:
        client = self.serve(self.BARRIER, concurrency=3)
        self.assertEqual(client.ready, {"concurrency": 3})
        answers = [client.wait(s) for s in [client.open() for _ in range(3)]]
        self.assertEqual(sum(a.items[0]["main"] for a in answers), 1)

    def test_def_handler_runs_one_at_a_time_in_the_thread_of_load(self) -> None:
        client = self.serve("""
            import threading
            lock, thread = threading.Lock(), None
            def load(context):
                global thread
                thread = threading.get_ident()
            def handle_request(request, context):
                assert lock.acquire(blocking=False), "two at once"
                try:
                    return thread == threading.get_ident()
                finally:
                    lock.release()
            """)
        streams = [client.open() for _ in range(20)]
        for stream in streams:
            self.assertEqual(client.wait(stream).items, [True])

    def test_async_tasks_run_at_once_and_stream(self) -> None:
        client = self.serve(
            """
            import asyncio
            async def load(context):
                context.state.waiting = 0
                context.state.all_here = asyncio.Event()
            async def handle_request(request, context):
                context.state.waiting += 1
                if context.state.waiting == 3: context.state.all_here.set()
                await asyncio.wait_for(context.state.all_here.wait(), 10)
                for n in range(3):
                    yield f"{request['who']}{n}"
                    await asyncio.sleep(0)
            """,
            concurrency=3,
        )
        streams = {who: client.open({"who": who}) for who in "abc"}
        for who, stream in streams.items():
            self.assertEqual(client.wait(stream).items, [f"{who}0", f"{who}1", f"{who}2"])

    def test_async_handler_waits_for_credit_without_blocking_others(self) -> None:
        runtime = self.run_handler(
            """
            async def handle_request(request, context):
                return bytes(request["size"])
            """,
            concurrency=2,
        )
        client = self.connect(runtime, grant=False)
        large = client.open({"size": 3_000_000})
        self.assertEqual(client.ask({"size": 1}).items, [b"\0"])
        client.grant = True
        client.give_credit(large, protocol.INITIAL_CREDIT)
        self.assertEqual(len(client.wait(large).items[0]), 3_000_000)

    def test_async_concurrency_is_a_limit(self) -> None:
        client = self.serve(
            """
            import asyncio
            running = most = 0
            async def handle_request(request, context):
                global running, most
                running += 1
                most = max(most, running)
                for _ in range(5): await asyncio.sleep(0)
                running -= 1
                return most
            """,
            concurrency=2,
        )
        streams = [client.open() for _ in range(10)]
        self.assertEqual(max(client.wait(s).items[0] for s in streams), 2)

    def test_def_handler_may_return_what_must_be_awaited(self) -> None:
        client = self.serve("""
            import asyncio
            async def parts():
                for n in range(2):
                    await asyncio.sleep(0)
                    yield n
            async def one():
                return "awaited"
            def handle_request(request, context):
                return parts() if request.get("stream") else one()
            """)
        self.assertEqual(client.ask().items, ["awaited"])
        self.assertEqual(client.ask({"stream": 1}).items, [0, 1])

    def test_connections_are_served_side_by_side(self) -> None:
        client = self.serve(self.BARRIER, concurrency=3)
        others = [client, self.connect(self.runtime), self.connect(self.runtime)]
        streams = [(c, c.open()) for c in others]
        for other, stream in streams:
            self.assertIsNone(other.wait(stream).error)


class Life(RuntimeTest):
    def test_prints_go_to_the_log_and_never_to_stdout(self) -> None:
        client = self.serve("""
            import os
            print("at import")
            def load(context): os.write(1, b"raw write\\n"); context.log("by log")
            def handle_request(request, context):
                print("in request")
                return "ok"
            """)
        client.ask()
        self.runtime.process.kill()
        self.runtime.wait()
        for text in ("at import", "raw write", "by log", "in request"):
            self.assertIn(text, self.runtime.log())
        assert self.runtime.process.stdout is not None
        self.assertEqual(self.runtime.process.stdout.read(), b"")

    def test_context_has_weights_and_folders(self) -> None:
        client = self.serve(
            """
            import helper
            def load(context):
                context.state.found = context.weights["net"]
            def handle_request(request, context):
                try:
                    context.weights["other"]
                except KeyError as error:
                    missing = str(error)
                return {"net": context.state.found, "cache": context.cache_dir, "model": context.model,
                        "helper": helper.VALUE, "missing": missing, "concurrency": context.concurrency}
            """,
            files={"helper.py": "VALUE = 42"},
            weights={"net": "/w/net"},
            cache_dir="/c",
        )
        item = client.ask().items[0]
        self.assertIn("declares: net", item.pop("missing"))
        self.assertEqual(
            item,
            {"net": "/w/net", "cache": "/c", "model": "tested", "helper": 42, "concurrency": 1},
        )

    def test_model_files_do_not_shadow_what_the_runtime_imports(self) -> None:
        client = self.serve(
            'def handle_request(request, context): return "ok"',
            files={"socket.py": "1/0", "json.py": "1/0", "threading.py": "1/0", "omni.py": "1/0"},
        )
        self.assertEqual(client.ask().items, ["ok"])

    def fails_to_load(self, handler: str | None, *reasons: str, **settings: Any) -> str:
        runtime = self.run_handler(handler, **settings)
        self.assertEqual(runtime.wait(), 1)
        log = runtime.log()
        for reason in reasons:
            self.assertIn(reason, log.splitlines()[-1])
        return log

    def test_missing_handler(self) -> None:
        self.fails_to_load(None, 'cannot load model "tested"', "there is no file", "handler.py")

    def test_handler_without_handle_request(self) -> None:
        self.fails_to_load("x = 1", "has no function handle_request(request, context)")

    def test_import_error_shows_traceback_then_reason(self) -> None:
        log = self.fails_to_load("import no_such_package", "No module named 'no_such_package'")
        self.assertIn("Traceback", log)

    def test_syntax_error(self) -> None:
        self.fails_to_load("def handle_request(:", "SyntaxError", "handler.py, line 1")

    def test_load_that_raises(self) -> None:
        log = self.fails_to_load(
            """
            def load(context): raise OSError("weights are\\nbroken")
            def handle_request(request, context): pass
            """,
            "load(): OSError: weights are broken",
        )
        self.assertIn("Traceback", log)

    def test_load_that_exits(self) -> None:
        self.fails_to_load(
            """
            import sys
            def load(context): sys.exit("no licence")
            def handle_request(request, context): pass
            """,
            "SystemExit: no licence",
        )

    def test_preload_that_fails(self) -> None:
        self.fails_to_load("x = 1", "preload no_such", preload=["no_such"])

    def test_hello_and_ping_are_answered_during_load_and_ready_after(self) -> None:
        runtime = self.run_handler("""
            import os, time
            def load(context):
                while not os.path.exists(os.path.join(context.model_dir, "go")): time.sleep(0.005)
            def handle_request(request, context): return 1
            """)
        client = Client(runtime.path)
        self.addCleanup(client.close)
        client.ping()
        self.assertEqual(client.hello, {"version": 1})
        self.assertIsNone(client.ready)
        (runtime.model_dir / "go").touch()
        client.wait_ready()
        self.assertEqual(client.ready, {"concurrency": 1})

    def test_drain_finishes_what_runs_refuses_new_and_exits_0(self) -> None:
        for kind in ("def", "async def"):
            with self.subTest(kind):
                wait = "await asyncio.sleep(0.005)" if kind == "async def" else "time.sleep(0.005)"
                runtime = self.run_handler(f"""
                    import asyncio, os, time
                    {kind} handle_request(request, context):
                        while not os.path.exists(os.path.join(context.model_dir, "go")): {wait}
                        return "x" * 1_000_000
                    """)
                client = self.connect(runtime)
                control = self.connect(runtime, role="control")
                running = client.open()
                client.ping()
                control.send(protocol.DRAIN, 0)
                control.ping()
                self.assert_error(client.ask(), "shutting_down")
                (runtime.model_dir / "go").touch()
                self.assertEqual(client.wait(running).items, ["x" * 1_000_000])
                self.assertEqual(runtime.wait(), 0)

    def test_forked_child_does_not_keep_the_connection_open(self) -> None:
        client = self.serve("""
            import os, time
            def handle_request(request, context):
                pid = os.fork()
                if pid == 0:
                    time.sleep(60)
                    os._exit(0)
                yield pid
                os._exit(9)
            """)
        stream = client.open()
        child = client.wait_items(stream, 1)[0]
        try:
            with self.assertRaises(ConnectionError):
                client.wait(stream)
        finally:
            os.kill(child, signal.SIGKILL)

    def test_garbage_closes_that_connection_alone(self) -> None:
        client = self.serve('def handle_request(request, context): return "ok"')
        for garbage in (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            protocol.frame(protocol.PING, 0),
            protocol.frame(protocol.HELLO, 0, b"[]"),
            protocol.frame(protocol.HELLO, 0, b'{"version": 0}'),
        ):
            raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            raw.settimeout(10)
            raw.connect(self.runtime.path)
            raw.sendall(garbage)
            self.assertEqual(raw.recv(1), b"", garbage)
            raw.close()
        hostile = self.connect(self.runtime)
        hostile.send(protocol.DATA, 99, b"of no stream")
        with self.assertRaises(ConnectionError):
            hostile.ping()
        self.assertEqual(client.ask().items, ["ok"])

    def test_starts_without_slow_imports(self) -> None:
        client = self.serve("""
            import sys
            def handle_request(request, context): return sorted(sys.modules)
            """)
        loaded = set(client.ask().items[0])
        slow = {"asyncio", "typing", "logging", "dataclasses", "inspect", "pathlib", "traceback"}
        self.assertEqual(loaded & slow, set())


if __name__ == "__main__":
    unittest.main()
