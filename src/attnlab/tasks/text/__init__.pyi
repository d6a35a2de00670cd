from .corpus import Corpus as Corpus
from .corpus import Source as Source
from .corpus import open_corpus as open_corpus
from .task import Text as Text
from .windows import estimate_classes as estimate_classes
