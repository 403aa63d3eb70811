"""Products without oneDNN: the setting is one for the whole process, so it must come back."""

import threading

import pytest
import torch

from romae.model.kernels import onednn


@pytest.fixture(params=[True, False], ids=["enabled", "disabled by the user"])
def setting(request, monkeypatch):
    monkeypatch.setattr(onednn, "IS_ARM", True)
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = request.param
    yield request.param
    torch.backends.mkldnn.enabled = before


def test_it_is_off_inside_and_as_before_afterwards_also_after_an_error(setting):
    with pytest.raises(KeyError), onednn.without_onednn():
        assert not torch.backends.mkldnn.enabled
        raise KeyError
    assert torch.backends.mkldnn.enabled == setting


def test_threads_that_overlap_leave_it_as_it_was(setting):
    is_inside, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with onednn.without_onednn():
            is_inside.set()
            may_leave.wait(10)

    thread = threading.Thread(target=other)
    with onednn.without_onednn():
        thread.start()
        assert is_inside.wait(10)
    assert not torch.backends.mkldnn.enabled  # the other thread still computes
    may_leave.set()
    thread.join()
    assert torch.backends.mkldnn.enabled == setting


def test_other_processors_keep_it(monkeypatch):
    monkeypatch.setattr(onednn, "IS_ARM", False)
    before = torch.backends.mkldnn.enabled
    with onednn.without_onednn():
        assert torch.backends.mkldnn.enabled == before
