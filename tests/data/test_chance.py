import numpy as np

from txlab.data.chance import uniforms


def test_a_pure_function_of_all_its_arguments():
    given = {"seed": 3, "epoch": 2, "row": 5}
    first = uniforms(1000, **given)
    assert np.array_equal(first, uniforms(1000, **given))
    assert np.array_equal(first[:10], uniforms(10, **given))
    for name in given:
        other = uniforms(1000, **given | {name: given[name] + 1})
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.1


def test_uniform_and_without_pattern():
    table = np.stack([uniforms(500, seed=0, epoch=e, row=r) for e in (-1, 0, 1) for r in range(60)])
    assert table.min() >= 0
    assert table.max() < 1
    counts = np.histogram(table, bins=20, range=(0, 1))[0]
    expected = table.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43  # chi^2 of 19 degrees, p = 0.001
    assert len(np.unique(table)) == table.size
    neighbours = np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]
    assert abs(neighbours) < 0.02
