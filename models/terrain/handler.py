"""Height maps, by one-step diffusion. A number in the prompt is the difficulty, 1 to 100."""

import io
import re

import numpy as np
import onnxruntime
from omni import InvalidRequest, Response
from PIL import Image
from terrain_diffusion import TerrainGenerator

MAX_PROMPT = 1000
MIN_SIDE, MAX_SIDE = 16, 512  # 5 seconds at 512x512


class Generator(TerrainGenerator):
    @staticmethod
    def _create_session(model_path, device):  # the class has no option for the threads
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(model_path, options, ["CPUExecutionProvider"]), "cpu"


def load(context):
    context.state.generator = Generator()


def handle_request(request, context):
    if request.get("n", 1) != 1:
        raise InvalidRequest("n must be 1: ask again for another picture", param="n")
    seed = request.get("seed")  # none: another picture each time
    if seed is not None and (type(seed) is not int or not 0 <= seed < 1 << 63):
        raise InvalidRequest("seed must be a whole number from 0 to 2^63-1", param="seed")
    width, height = size(request.get("size", "128x128"))
    generator, level = context.state.generator, difficulty(request["prompt"])
    # A large picture is made of tiles: by one at a time it needs no more memory than a small one.
    options = {"shape": (height, width), "batch_size": 1}
    heights = generator.generate(difficulty=level, seed=seed, **options)[0]
    gray = heights * (65535 / max(heights.max(), 1e-6))  # the highest point is white
    Image.fromarray(gray.astype(np.uint16)).save(png := io.BytesIO(), "PNG")
    return Response(png.getvalue(), content_type="image/png")


def size(text):
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", str(text), re.ASCII)
    sides = [int(side) for side in match.groups()] if match else [0]
    if not MIN_SIDE <= min(sides) <= max(sides) <= MAX_SIDE:
        message = f'size must be "WIDTHxHEIGHT", each from {MIN_SIDE} to {MAX_SIDE}'
        raise InvalidRequest(message, param="size")
    return sides


def difficulty(prompt):
    number = re.search(r"\d{1,9}", prompt, re.ASCII) if isinstance(prompt, str) else None
    value = int(number.group()) if number else 50
    if not isinstance(prompt, str) or len(prompt) > MAX_PROMPT or not 1 <= value <= 100:
        message = f"prompt must be text of at most {MAX_PROMPT:,} characters, its number 1 to 100"
        raise InvalidRequest(message, param="prompt")
    return value
