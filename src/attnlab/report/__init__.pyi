from .make import Reproduction as Reproduction
from .make import reproduce as reproduce
from .page import page as page
