"""A platform whose vault is ready, and people of it."""

import pytest
from platform_people import People


@pytest.fixture
def people(services):
    services.vault.check(services.database)
    return People(services)


@pytest.fixture
def ada(people):
    """The owner of the workspace `lab`."""
    return people.make("ada")
