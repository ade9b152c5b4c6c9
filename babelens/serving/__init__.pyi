from .app import create_app as create_app
from .service import ImageService as ImageService
