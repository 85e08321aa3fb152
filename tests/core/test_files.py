"""Folders that are to be written anew."""

import pytest

from txlab.core.errors import RequestError
from txlab.core.files import refuse_as_new


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"out=.*file exists: name a folder"):
        refuse_as_new(tmp_path / "file", "out=")
    for place in (tmp_path / "file/x", tmp_path / "file/x/y"):
        with pytest.raises(RequestError, match="cannot be written"):
            refuse_as_new(place)
    refuse_as_new(tmp_path / "new/x")
    assert list((tmp_path / "new").iterdir()) == []
