"""The pendulum: find the angle in noisy images taken at irregular times (the paper's Table 5).

A pendulum swings for a second under friction and random pushes. One image of 24 x 24 pixels is drawn at each of 100
frames, noise that comes and goes is laid over it, and half of the frames are kept. Each kept frame is one token; its
position is the index of the frame, its target the sine and cosine of the angle, 0 hanging down.

Shapes: b sequences, f frames, n kept frames, y rows and x columns of an image.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int, UInt8

from romae.experiments.datasets.streams import streams
from romae.tokens.sample import Sample

COUNTS = MappingProxyType({"train": 2_000, "validation": 1_000, "test": 1_000})

N_FRAMES, N_KEPT, IMAGE_SIZE = 100, 50, 24

GRAVITY, INERTIA, FRICTION = 9.81, 1 / 3, 0.1  # of a rod of mass 1 and length 1
STEP, STEPS_PER_FRAME = 1e-4, 100
PUSH, DRAWING_NOISE = 0.1, 1e-5  # standard deviations, of the speed after each frame and of the drawn angle

CANVAS, CENTRE, ROD, ROD_WIDTH = 128, 64, 55, 8  # in pixels
LANCZOS_LOBES = 3
N_CLEAN_FRAMES = 5  # at the start of each sequence


def generate(*, seed: int, counts: Mapping[str, int] = COUNTS) -> dict[str, list[Sample]]:
    """Sequences of each split. Splits are drawn independently, so the size of one does not change the others."""
    return {
        split: _sequences(counts[split], random) if counts[split] else []
        for split, random in streams(seed, counts).items()
    }


def clarity_of(split: str, *, seed: int, counts: Mapping[str, int] = COUNTS) -> Float[np.ndarray, "b n"]:
    """The share of the true image in each kept frame of a split that `generate` made of the same seed and counts."""
    return _kept_frames(counts[split], streams(seed, counts)[split])[1]


def _kept_frames(
    n_sequences: int, random: np.random.Generator
) -> tuple[Float[np.ndarray, "b n"], Float[np.ndarray, "b n"], Int[np.ndarray, "b n"]]:
    """The angle, the clarity and the index of each kept frame."""
    angles = swing(n_sequences, random)
    clarity = image_clarity(n_sequences, random)
    order = random.random((n_sequences, N_FRAMES)).argsort(axis=1)
    kept = np.sort(order[:, :N_KEPT], axis=1)
    return np.take_along_axis(angles, kept, axis=1), np.take_along_axis(clarity, kept, axis=1), kept


def _sequences(n_sequences: int, random: np.random.Generator) -> list[Sample]:
    angles, clarity, kept = _kept_frames(n_sequences, random)
    drawn = angles + random.normal(0, DRAWING_NOISE, angles.shape)
    targets = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return [
        Sample(
            values=with_noise(images, share, random).reshape(N_KEPT, -1) / np.float32(255),
            positions=frames[:, None].astype(np.float64),
            target=target,
        )
        for images, share, frames, target in zip(draw(drawn), clarity, kept, targets, strict=True)
    ]


def swing(n_sequences: int, random: np.random.Generator) -> Float[np.ndarray, "b f"]:
    """The angle in each frame, in radians between -π and π, 0 hanging down; the first frame is at rest."""
    angle = random.uniform(0, 2 * np.pi, n_sequences)  # here 0 points upwards
    speed = np.zeros(n_sequences)
    angles = np.empty((N_FRAMES, n_sequences))
    for frame in range(N_FRAMES):
        angles[frame] = angle
        for _ in range(STEPS_PER_FRAME):
            speed += STEP * (GRAVITY / INERTIA * np.sin(angle) - FRICTION * speed)
            angle += STEP * speed
        speed += random.normal(0, PUSH, n_sequences)
        angle %= 2 * np.pi
    return angles.T - np.pi


def image_clarity(n_sequences: int, random: np.random.Generator) -> Float[np.ndarray, "b f"]:
    """The share of the true image in each frame: a clipped random walk, stretched so that it stays at 0 and 1."""
    walk = np.empty((N_FRAMES, n_sequences))
    walk[0] = random.uniform(0, 1, n_sequences)
    for frame in range(1, N_FRAMES):
        walk[frame] = np.clip(walk[frame - 1] + random.uniform(-0.2, 0.2, n_sequences), 0, 1)
    nothing, everything = random.uniform(0, 0.25, n_sequences), random.uniform(0.75, 1, n_sequences)
    clarity = np.clip((walk - nothing) / (everything - nothing), 0, 1)
    clarity[:N_CLEAN_FRAMES] = 1
    return clarity.T


def with_noise(
    images: UInt8[np.ndarray, "n y x"], clarity: Float[np.ndarray, "n"], random: np.random.Generator
) -> UInt8[np.ndarray, "n y x"]:
    """Images mixed with uniform noise, as much of each as `clarity` says."""
    share = clarity[:, None, None].astype(np.float32)
    noise = random.random(images.shape, dtype=np.float32) * np.float32(255)
    return (share * images + (1 - share) * noise).astype(np.uint8)


def draw(angles: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape y x"]:
    """The image of the rod at each angle, as pillow draws it: a line 8 wide on 128 x 128, reduced with Lanczos.

    The rod ends on a whole pixel of the canvas, so there are only some 400 different images. Each is drawn once.
    """
    ends = np.stack([CENTRE + ROD * np.sin(angles), CENTRE + ROD * np.cos(angles)], axis=-1).astype(np.int64)
    codes, image_of_angle = np.unique(ends[..., 0] * CANVAS + ends[..., 1], return_inverse=True)
    table = np.stack([_image(*divmod(int(code), CANVAS)) for code in codes])
    return table[image_of_angle.reshape(angles.shape)]


def _image(end_x: int, end_y: int) -> UInt8[np.ndarray, "y x"]:
    left, right = _edges(_corners(end_x, end_y))
    columns = np.arange(CANVAS)
    is_rod = (columns >= left[:, None]) & (columns <= right[:, None])
    reduce = _lanczos()
    image = (reduce @ is_rod @ reduce.T).astype(np.float32)
    return (np.float32(255) * image.clip(0, 1)).astype(np.uint8)


def _corners(end_x: int, end_y: int) -> Int[np.ndarray, "4 2"]:
    """The corners (x, y) of the rod, whose even width lies unevenly about the centre line: 3 pixels and 4.

    Offsets along x round halves towards zero and those along y away from it.
    """
    along = np.array([end_x - CENTRE, end_y - CENTRE])
    across = along / np.hypot(*along)
    narrow, wide = (ROD_WIDTH - 1) // 2, ROD_WIDTH // 2
    x_narrow, x_wide = (_rounded(side * across[1], half_up=False) for side in (narrow, wide))
    y_narrow, y_wide = (_rounded(side * across[0], half_up=True) for side in (narrow, wide))
    one_side, other_side = np.array([-x_narrow, y_wide]), np.array([x_wide, -y_narrow])
    start, end = np.array([CENTRE, CENTRE]), np.array([end_x, end_y])
    return np.stack([start + one_side, end + one_side, end + other_side, start + other_side])


def _rounded(x: float, *, half_up: bool) -> int:
    size = np.floor(abs(x) + 0.5) if half_up else np.ceil(abs(x) - 0.5)
    return int(np.copysign(size, x))


def _edges(corners: Int[np.ndarray, "4 2"]) -> tuple[Float[np.ndarray, "y"], Float[np.ndarray, "y"]]:
    """The first and the last column of a convex polygon in each row; none where first lies behind last."""
    rows = np.arange(CANVAS)
    left, right = np.full(CANVAS, np.inf), np.full(CANVAS, -np.inf)
    for (x, y), (next_x, next_y) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        is_crossed = (rows >= min(y, next_y)) & (rows <= max(y, next_y))
        # The division comes last, so that a crossing halfway between two pixels is exactly that.
        crossings = (x, next_x) if y == next_y else (x + (rows - y) * (next_x - x) / (next_y - y),)
        for crossing in crossings:
            left = np.where(is_crossed, np.minimum(left, crossing), left)
            right = np.where(is_crossed, np.maximum(right, crossing), right)
    return np.floor(left + 0.5), np.ceil(right - 0.5)


def _lanczos() -> Float[np.ndarray, "y canvas"]:
    """The weight of each line of the canvas in each line of the image."""
    scale = CANVAS / IMAGE_SIZE
    centres = (np.arange(IMAGE_SIZE) + 0.5) * scale
    distance = (np.arange(CANVAS) + 0.5 - centres[:, None]) / scale
    weights = np.sinc(distance) * np.sinc(distance / LANCZOS_LOBES) * (abs(distance) < LANCZOS_LOBES)
    return weights / weights.sum(axis=1, keepdims=True)
