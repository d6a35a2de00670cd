from . import classes as classes
from . import text as text
from .base import Batch as Batch
from .base import Task as Task
from .markov import MarkovChains as MarkovChains
from .sequences import Mixture as Mixture
from .sequences import Sequences as Sequences
from .text import Text as Text
