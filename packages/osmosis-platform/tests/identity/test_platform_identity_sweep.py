"""What is over is forgotten, and nothing else."""

from types import SimpleNamespace

from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.db.repositories.throttles import ThrottleRepository
from osmosis_platform.identity.device import begin_login
from osmosis_platform.identity.sessions import open_session
from osmosis_platform.jobs import identity_sweep
from osmosis_platform.jobs.handler import KINDS
from osmosis_platform.jobs.schedule import SCHEDULE


def test_the_sweep_forgets_what_is_over(house):
    def begin(work, key):
        open_session(work, house.users["ada"].id, days=1)
        begin_login(work, "laptop")
        ThrottleRepository(work).hit(key, 60)

    house.write(lambda work: begin(work, "old"))
    house.clock.turn(days=2)
    house.write(lambda work: begin(work, "new"))
    forgotten = identity_sweep.run(SimpleNamespace(write=house.services.database.write))
    assert (forgotten["sessions"], forgotten["counts"]) == (1, 1)
    assert len(house.read(lambda work: SessionRepository(work).of_user(house.users["ada"].id))) == 1
    assert "identity.sweep" in KINDS and "identity.sweep" in SCHEDULE
