"""Extras: libraries that only some of romae needs, installed by `pip install 'romae[NAME]'`."""

from importlib.util import find_spec

# The libraries of each extra that romae imports itself, by the names of their modules; pyproject.toml has the versions.
EXTRAS = {
    "audio": ("soundfile",),
    "images": ("PIL",),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "plots": ("matplotlib", "plotly"),
    "experiments": ("astropy", "matplotlib", "plotly", "pooch"),
    "peers": ("pypots",),
}


def require_extra(name: str, purpose: str, *modules: str) -> None:
    """Raise an ImportError of one sentence, with the command that helps, unless these modules of an extra, or all of
    them, are installed."""
    missing = [module for module in modules or EXTRAS[name] if not _is_installed(module)]
    if missing:
        libraries = ", ".join(missing).replace("PIL", "pillow")
        raise ImportError(f"{purpose} {libraries}: pip install 'romae[{name}]'")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
