from .app import create_app as create_app
from .limits import ServingLimits as ServingLimits
from .service import ImageService as ImageService
