from .classes import estimate_classes as estimate_classes
from .corpus import Corpus as Corpus
from .corpus import Source as Source
from .corpus import open_corpus as open_corpus
from .task import Text as Text
