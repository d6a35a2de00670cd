from .conformance import Outcome as Outcome
from .conformance import Requirement as Requirement
from .conformance import examine as examine
from .conformance import requirements as requirements
from .template import new_paper as new_paper
