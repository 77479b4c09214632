"""What any engine must pass to be a store: one suite, bound to an engine by its fixtures.

An engine's test file subclasses `StoreConformance` and gives the fixtures `open_store` (opens the
same database again at each call) and `address` (what `tests.storage.child` opens it by).
"""

from tests.storage.conformance.adoption import AdoptionPromises
from tests.storage.conformance.anew import AnewPromises
from tests.storage.conformance.arrivals import ArrivalPromises
from tests.storage.conformance.chats import ChatPromises
from tests.storage.conformance.commands import CommandPromises
from tests.storage.conformance.durability import DurabilityPromises
from tests.storage.conformance.fences import FencePromises
from tests.storage.conformance.lanes import LanePromises
from tests.storage.conformance.notes import NotePromises
from tests.storage.conformance.outbox import OutboxPromises
from tests.storage.conformance.people import PeoplePromises
from tests.storage.conformance.posts import PostPromises
from tests.storage.conformance.programs import ProgramPromises
from tests.storage.conformance.questions import QuestionPromises
from tests.storage.conformance.reports import ReportPromises
from tests.storage.conformance.requests import RequestPromises
from tests.storage.conformance.search import SearchPromises
from tests.storage.conformance.sessions import SessionPromises
from tests.storage.conformance.spending import SpendingPromises
from tests.storage.conformance.time import TimePromises
from tests.storage.conformance.works import WorkPromises

__all__ = ["StoreConformance"]


class StoreConformance(
    DurabilityPromises,
    LanePromises,
    FencePromises,
    CommandPromises,
    OutboxPromises,
    SessionPromises,
    AnewPromises,
    AdoptionPromises,
    ProgramPromises,
    RequestPromises,
    TimePromises,
    WorkPromises,
    QuestionPromises,
    SpendingPromises,
    ReportPromises,
    PostPromises,
    SearchPromises,
    NotePromises,
    PeoplePromises,
    ChatPromises,
    ArrivalPromises,
):
    """Every promise of the contract."""
