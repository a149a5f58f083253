"""The classes that handlers and their own tests use."""

from __future__ import annotations

import io
import unittest

from omni import Context, File, InvalidRequest, Request, Response


class Requests(unittest.TestCase):
    def test_parameters_read_like_a_dictionary(self) -> None:
        request = Request({"input": "x", "n": None})
        self.assertEqual(request["input"], "x")
        self.assertIn("n", request)
        self.assertIsNone(request.get("n", 1))
        self.assertEqual(request.get("other", 1), 1)
        with self.assertRaises(InvalidRequest) as raised:
            request["other"]
        self.assertEqual(raised.exception.param, "other")

    def test_files_by_field_and_raw_body_out_of_the_nameless_one(self) -> None:
        first = File(io.BytesIO(b"one"), field="file", filename="a.wav")  # type: ignore[arg-type]
        raw = File(io.BytesIO(b"two"), field="")  # type: ignore[arg-type]
        request = Request(files=[first, raw])
        self.assertIs(request.file(), first)
        self.assertEqual(request.file().name, "a.wav")
        self.assertEqual(request.body, b"two")
        self.assertEqual(Request().body, b"")


class Responses(unittest.TestCase):
    def test_refuse_what_http_cannot_carry(self) -> None:
        for headers in ({"A": "b\r\nC: d"}, {"": "x"}, {"A\n": "b"}):
            with self.assertRaises(ValueError):
                Response("", headers=headers)
        with self.assertRaises(ValueError):
            Response("", content_type="a\nb")
        with self.assertRaises(ValueError):
            Response("", status=101)
        with self.assertRaises(TypeError):
            Response("", headers={"A": 1})  # type: ignore[dict-item]


class Contexts(unittest.TestCase):
    def test_state_is_the_handlers_and_says_what_is_missing(self) -> None:
        context = Context(weights={"net": "/w/net"})
        context.state.model = 1
        self.assertEqual(context.state.model, 1)
        with self.assertRaisesRegex(AttributeError, "context.state.other was never set"):
            context.state.other
        with self.assertRaisesRegex(KeyError, "declares: net"):
            context.weights["other"]


if __name__ == "__main__":
    unittest.main()
