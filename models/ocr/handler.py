"""Text in pictures, Latin and Chinese: PP-OCRv4 by RapidOCR on ONNX Runtime."""

import io

import cv2
from omni import InvalidRequest
from PIL import Image
from rapidocr_onnxruntime import RapidOCR

MAX_PIXELS = 12_000_000
MIN_SIDE, MAX_RATIO = 8, 60  # the shorter side is enlarged to 30 pixels, and the longer with it
READ_SIDE = 960  # larger ones are scaled to it: memory grows with its square, 600 MiB at 2000
Image.MAX_IMAGE_PIXELS = None  # open_image() has a limit of its own, and says which


def load(context):
    cv2.setNumThreads(1)
    # By default the shorter side is enlarged to 736 pixels (640x120 becomes 3925x736), and six
    # lines are read at once, which costs memory and gains no time.
    context.state.ocr = RapidOCR(
        intra_op_num_threads=1, inter_op_num_threads=1, det_limit_type="max", rec_batch_num=1
    )


def handle_request(request, context):
    image, scale = open_image(request)
    found, _ = context.state.ocr(image)
    lines = [
        {"text": text, "score": float(score), "box": [[x * scale, y * scale] for x, y in corners]}
        for corners, text, score in found or []
    ]
    return {"text": "\n".join(line["text"] for line in lines), "lines": lines}


def open_image(request):
    """The body or the form's file "image", as large as it is read, and its scale."""
    file = next((f for f in request.files if f.field in ("image", "")), io.BytesIO(request.body))
    try:
        image = Image.open(file, formats=["PNG", "JPEG"])  # reads the header alone
        width, height = image.size
        if accepted(width, height):
            mode = "RGBA" if image.has_transparency_data else "RGB"
            image = image if image.mode == mode else image.convert(mode)
            image.thumbnail((READ_SIDE, READ_SIDE))
            image.load()  # a small one is not read before
            return image, width / image.width
    except Exception as error:  # Pillow raises a dozen kinds at broken files
        message = 'not a whole PNG or JPEG image: send one as the body or as form file "image"'
        raise InvalidRequest(message, param="image") from error
    raise InvalidRequest(
        f"{width}x{height} pixels: at most {MAX_PIXELS:,} in all, at least {MIN_SIDE} a side, and "
        f"no side {MAX_RATIO} times the other",
        param="image",
    )


def accepted(width, height):
    short, long = sorted((width, height))
    return short * long <= MAX_PIXELS and short >= MIN_SIDE and long <= MAX_RATIO * short
