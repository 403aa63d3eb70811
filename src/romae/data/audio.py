"""Audio: files, folders of files and arrays to log-mel spectrograms, cut into patches of time and frequency.

Sound of any length is taken as it is: a longer clip simply has more tokens. Shapes: n samples of a waveform,
f frames, m mel bins.
"""

import math
import numbers
import os
import struct
from collections.abc import Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from romae.data.columns import to_numpy
from romae.data.filterbank import N_MELS, SILENCE, log_mel, n_frames, with_frames
from romae.data.folder import Folder
from romae.extras import require_extra
from romae.tokens.patches import grid_counts, grid_positions, patchify
from romae.tokens.sample import Sample

SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
SIZE_FORMATS = {b"RIFF": "<I", b"RIFX": ">I", b"FORM": ">I"}  # how WAV and AIFF files announce theirs
RATE = 16_000
LARGEST_RATIO = 10**6  # of two sample rates, in whole numbers: the filter between them has twenty times as many taps
MOST_STRETCHED = 1000  # times as many samples as there were


def from_audio(
    audio: Any,
    rate: int | None = None,
    *,
    patch: Sequence[int] = (16, 16),
    frames: int | None = None,
    fill: float = SILENCE,
    resample_to: int = RATE,
    channels: int | None = None,
    mean: float = 0.0,
    std: float = 1.0,
    target: Any = None,
    id: Hashable = None,
) -> Sample:
    """A sample from one sound: the patches of its log-mel spectrogram of 128 bins.

    Parameters
    ----------
    audio : str, Path, array or tensor
        A file (WAV, FLAC, Ogg, MP3, AIFF), or a waveform [n], or one with several channels, of which the mean is taken.
        Whole numbers are brought to the range -1 to 1.
    rate : int, optional
        The sample rate in Hz. An array needs it; a file brings its own, which must agree.
    patch : sequence of int, default (16, 16)
        Frames and mel bins of a patch; each patch is one token.
    frames : int, optional
        Cut or lengthen the spectrogram at its end to this many frames of 10 ms. Without it, the patch must divide the
        number of frames.
    fill : float, default the value of silence
        What the spectrogram is lengthened with.
    resample_to : int, default 16000
        The sample rate in Hz that the spectrogram is computed at.
    channels : int, optional
        The dimension of an array that holds the channels, 0 or -1.
    mean : float, default 0.0
        Subtracted from the spectrogram.
    std : float, default 1.0
        What it is divided by.
    target : int, float or array, optional
        A class index or numbers to predict.
    id : hashable, optional
        A name for the sample; by default the path of a file.

    Returns
    -------
    Sample
        One token per patch, at its index along time and frequency.

    Raises
    ------
    ValueError
        If the sound cannot be read, is too short, has no rate, or the patch does not divide its frames.
    TypeError
        If it is no sound.
    ImportError
        If a file is to be read and soundfile is not installed: pip install 'romae[audio]'.

    Examples
    --------
    >>> import numpy as np
    >>> import romae
    >>> tone = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    >>> romae.from_audio(tone, rate=16000, frames=96)
    Sample(48 tokens, 256 channels, 2 position dims)
    """
    if id is None and isinstance(audio, str | os.PathLike):
        id = str(audio)
    waveform = read_waveform(audio, rate, resample_to=resample_to, channels=channels)
    x = log_mel(waveform, int(resample_to))
    return from_spectrogram(x, patch=patch, frames=frames, fill=fill, mean=mean, std=std, target=target, id=id)


def from_spectrogram(
    x: Float[Tensor, "f m"],
    *,
    patch: Sequence[int] = (16, 16),
    frames: int | None = None,
    fill: float = SILENCE,
    mean: float = 0.0,
    std: float = 1.0,
    target: Any = None,
    id: Hashable = None,
) -> Sample:
    """A sample from a spectrogram that is at hand; see `from_audio` for the arguments."""
    if not (_is_finite(mean) and _is_finite(std) and std > 0):
        raise ValueError(f"mean and std must be finite and std above 0, not {mean} and {std}")
    if frames is not None:
        if not isinstance(frames, numbers.Integral):
            raise TypeError(f"frames must be a whole number, not {frames!r}")
        x = with_frames(x, frames, fill)
    values = patchify((x - mean) / std, patch)
    return Sample(values, grid_positions(grid_counts(x.shape, patch)), target=target, id=id)


def from_audio_folder(
    folder: str | Path,
    *,
    has_classes: bool = False,
    classes: Sequence[str] | None = None,
    patch: Sequence[int] = (16, 16),
    frames: int | None = None,
    fill: float = SILENCE,
    resample_to: int = RATE,
    mean: float = 0.0,
    std: float = 1.0,
) -> Folder:
    """The sounds of a folder and all folders in it, as samples that are read when they are asked for.

    Parameters
    ----------
    folder : str or Path
        The folder.
    has_classes : bool, default False
        Whether each folder directly inside is a class, also an empty one.
    classes : sequence of str, optional
        The names of the classes in their order; by default sorted. For test data hand over those of training:
        `classes=train.class_names`.
    patch : sequence of int, default (16, 16)
        Frames and mel bins of a patch; each patch is one token.
    frames : int, optional
        Cut or lengthen the spectrogram at its end to this many frames of 10 ms. Without it, the patch must divide the
        number of frames.
    fill : float, default the value of silence
        What the spectrogram is lengthened with.
    resample_to : int, default 16000
        The sample rate in Hz that the spectrogram is computed at.
    mean : float, default 0.0
        Subtracted from the spectrograms.
    std : float, default 1.0
        What they are divided by.

    Returns
    -------
    Folder
        A sequence of samples in the order of their paths, which are their ids; `class_names` are its classes.

    Raises
    ------
    ValueError
        If there is no such folder, no sound in it, or a class that is not among `classes`. A file that cannot be read
        is named when it is asked for.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import soundfile
    >>> import romae
    >>> Path("clips").mkdir()
    >>> soundfile.write("clips/1.wav", np.zeros(16000), 16000)
    >>> romae.from_audio_folder("clips", frames=96)[0]
    Sample('1.wav': 48 tokens, 256 channels, 2 position dims)
    """
    read = partial(from_audio, patch=patch, frames=frames, fill=fill, resample_to=resample_to, mean=mean, std=std)
    measure = partial(audio_length, patch=tuple(patch), frames=frames, resample_to=resample_to)
    return Folder.of(folder, SUFFIXES, read, has_classes=has_classes, classes=classes, measure=measure)


def audio_length(path: Path, *, patch: Sequence[int], frames: int | None = None, resample_to: int = RATE) -> int:
    """The tokens that `from_audio` makes of a file, from its header; an MP3 file, whose header may err, is decoded."""
    if frames is None:
        if path.suffix.lower() == ".mp3":
            n_samples = len(read_waveform(path, resample_to=resample_to))
        else:
            n_samples, rate = _header(path)
            common = math.gcd(rate, int(resample_to))
            n_samples = -(-n_samples * (int(resample_to) // common) // (rate // common))  # as resample_poly rounds
        frames = n_frames(n_samples, int(resample_to))
    try:
        return math.prod(grid_counts((int(frames), N_MELS), patch))
    except ValueError as error:
        raise ValueError(f"the sound {path}: {error}") from None


def _header(path: Path) -> tuple[int, int]:
    """The number of samples that a file announces, and their rate."""
    try:
        import soundfile
    except ImportError:
        raise ImportError("reading audio files needs soundfile: pip install 'romae[audio]'") from None
    try:
        header = soundfile.info(path)
    except (soundfile.SoundFileError, OSError, RuntimeError) as error:
        raise ValueError(f"cannot read the sound {path}: {error}") from None
    return int(header.frames), int(header.samplerate)


def read_waveform(
    audio: Any, rate: int | None = None, *, resample_to: int = RATE, channels: int | None = None
) -> Float32[Tensor, "n"]:
    """A sound as one channel at the rate `resample_to`, its mean taken off.

    `audio` is a path, an array or a tensor: [n], or with more channels in the dimension `channels` (0 or -1), of
    which the mean is taken. Whole numbers are brought to the range -1 to 1.
    """
    if isinstance(audio, str | os.PathLike):
        name, channels = str(audio), -1
        sound, file_rate = _decoded(Path(audio))
        if rate is not None and rate != file_rate:
            raise ValueError(
                f"{name} has a sample rate of {file_rate} Hz, not {rate} Hz; leave out rate=, or correct it"
            )
        rate = file_rate
    else:
        name = "the sound"
        if rate is None:
            raise ValueError("an array of samples needs its sample rate, for example rate=16000")
        sound = _from_array(audio)
    for setting, hertz in (("the sample rate of " + name, rate), ("resample_to", resample_to)):
        if not _is_whole(hertz) or hertz < 1:
            raise ValueError(f"{setting} must be a whole number of Hz above 0, not {hertz!r}")
    sound = _mixed(sound, channels, name)
    if len(sound) == 0:
        raise ValueError(f"{name} holds no samples")
    finite = np.isfinite(sound)
    if not finite.all():
        raise ValueError(f"{name} must be finite, and sample {int(np.argmin(finite))} is not")
    if rate != resample_to:
        from scipy.signal import resample_poly

        common = math.gcd(int(rate), int(resample_to))
        up, down = int(resample_to) // common, int(rate) // common
        if max(up, down) > LARGEST_RATIO or up > MOST_STRETCHED * down:
            raise ValueError(
                f"{name} has a sample rate of {rate} Hz, from which {resample_to} Hz cannot be made; is it right? Give "
                "another rate, or resample_to="
            )
        sound = resample_poly(sound, up, down)
    waveform = torch.tensor(sound, dtype=torch.float32)
    return waveform - waveform.mean()


def _is_whole(number: Any) -> bool:
    if isinstance(number, bool) or not isinstance(number, numbers.Real):
        return False
    return isinstance(number, numbers.Integral) or float(number).is_integer()


def _is_finite(number: Any) -> bool:
    try:
        return isinstance(number, numbers.Real) and math.isfinite(number)
    except OverflowError:  # a whole number beyond all floats
        return False


def _mixed(sound: np.ndarray, channels: int | None, name: str) -> np.ndarray:
    if channels is None and sound.ndim != 1:
        raise ValueError(
            f"{name} has the shape {list(sound.shape)}; for more than one channel say where they are, channels=-1 "
            "for [n, 2] or channels=0 for [2, n]"
        )
    if channels is None:
        return sound
    if sound.ndim != 2 or channels not in (-2, -1, 0, 1):
        raise ValueError(f"{name} has the shape {list(sound.shape)}, which holds no channels in dimension {channels}")
    if sound.shape[channels] == 0:
        raise ValueError(f"{name} has no channel")
    return sound.mean(axis=channels)


def _from_array(audio: Any) -> np.ndarray:
    """Samples from -1 to 1, from floats or from the whole numbers of 8, 16 or 32 bits that sound is stored in."""
    if not isinstance(audio, np.ndarray | Tensor):
        raise TypeError(f"a sound is a path, an array or a tensor, not {type(audio).__name__}")
    if np.ma.is_masked(audio):
        raise ValueError("the sound is masked in part; fill the gaps first, for example with sound.filled(0)")
    audio = to_numpy(audio)
    if audio.dtype.kind == "f":
        return audio.astype(np.promote_types(audio.dtype, np.float32))
    if audio.dtype.kind == "u" and audio.dtype.itemsize == 1:
        return (audio.astype(np.float32) - 128) / 128
    if audio.dtype.kind == "i" and audio.dtype.itemsize in (2, 4):
        return (audio / 2.0 ** (8 * audio.dtype.itemsize - 1)).astype(np.float32)
    raise TypeError(f"samples of {audio.dtype} are not a form of sound; use floats from -1 to 1, or int16")


def _decoded(path: Path) -> tuple[np.ndarray, int]:
    """The samples [n, channels] of a file and its sample rate."""
    require_extra("audio", "reading audio files needs")
    import soundfile

    if not path.is_file():
        raise ValueError(f"cannot read the sound {path}: there is no such file")
    try:
        with soundfile.SoundFile(path) as file:
            n_samples = file.frames
            sound = file.read(dtype="float32", always_2d=True)
            rate = file.samplerate
    except (soundfile.SoundFileError, OSError, RuntimeError) as error:
        raise ValueError(f"cannot read the sound {path}: {error}") from None
    if len(sound) < n_samples or _is_cut_short(path):
        raise ValueError(f"cannot read the sound {path}: the file is cut short")
    return sound, rate


def _is_cut_short(path: Path) -> bool:
    """Whether a WAV, AIFF or Ogg file ends before the end that it announces, which the decoder passes over."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        file.seek(max(0, size - 65_536))  # the longest Ogg page has 65 307 bytes
        end = file.read()
    if start[:4] in SIZE_FORMATS:
        (announced,) = struct.unpack(SIZE_FORMATS[start[:4]], start[4:])
        # A stream of unknown length announces the largest number; the last byte may be padding that was left out.
        return announced != 0xFFFFFFFF and announced + 8 > size + 1
    if start[:4] != b"OggS":
        return False
    page = end[max(end.rfind(b"OggS"), 0) :]
    if len(page) < 27 or not page[5] & 4:  # no header of a page, or not that of the last one
        return True
    n_segments = page[26]
    return len(page) < 27 + n_segments + sum(page[27 : 27 + n_segments])
