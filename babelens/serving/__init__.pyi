from .app import create_app as create_app
from .gate import ServingLimits as ServingLimits
from .service import ImageService as ImageService
