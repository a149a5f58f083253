"""A picture twice as large, made for drawings: ACNet of Anime4K. PNG out, without transparency."""

import io

import numpy as np
import pyanime4k
from omni import InvalidRequest, Response
from PIL import Image, ImageOps

FACTOR = 2  # what the network does; others would be this and a plain resize
MAX_PIXELS, MAX_SIDE = 1 << 20, 4096  # 1024x1024; a column of 4 million pixels takes 1 GiB
Image.MAX_IMAGE_PIXELS = None  # open_image() has a limit of its own, and says which


def load(context):
    context.state.processor = pyanime4k.Processor(
        processor_type="cpu", device=0, model="acnet-hdn0"
    )


def handle_request(request, context):
    if request.get("factor", FACTOR) != FACTOR:
        raise InvalidRequest(f"factor must be {FACTOR}: this model knows no other", param="factor")
    pixels = np.ascontiguousarray(open_image(request))
    larger = context.state.processor(src=pixels, factor=float(FACTOR))
    png = io.BytesIO()
    Image.fromarray(larger).save(png, "PNG", compress_level=1)  # the time is better spent above
    return Response(png.getvalue(), content_type="image/png")


def open_image(request):
    """The body, or the form's file "image", upright: the answer has no EXIF that turns it."""
    file = request.file("image")
    try:
        image = Image.open(file, formats=["PNG", "JPEG"])  # reads the header alone
        width, height = image.size
        if width * height <= MAX_PIXELS and max(width, height) <= MAX_SIDE:
            return ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:  # Pillow raises a dozen kinds at broken files
        message = 'not a whole PNG or JPEG image: send one as the body or as form file "image"'
        raise InvalidRequest(message, param="image") from error
    message = f"{width}x{height} pixels: at most {MAX_PIXELS:,} in all and {MAX_SIDE:,} a side"
    raise InvalidRequest(message, param="image")
