"""Lives of a broker on one folder, killed at any moment and started again: what was answered is kept."""

import pytest

from support.broker_life import Lives
from support.seeds import seeds

FOLDERS, LIVES = 4, 5


@pytest.mark.trust
@pytest.mark.parametrize("seed", seeds("broker lives", FOLDERS))
def test_lives(tmp_path, seed):
    play(tmp_path, seed, LIVES)


@pytest.mark.trust
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds("many broker lives", 40))
def test_many_lives(tmp_path, seed):
    play(tmp_path, seed, 2 * LIVES)


def play(tmp_path, seed, count, **how):
    """So many lives of one folder."""
    print("seed", seed)
    folder = tmp_path / "data"
    folder.mkdir()
    lives = Lives(folder, tmp_path / "ledger")
    for number in range(count):
        lives.play(f"{seed} {number}", **how)
    lives.play(f"{seed} end", has_end=True, **how)
    print(lives.model.life_count, "lives")
    return lives
