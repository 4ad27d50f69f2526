"""Every knob of the service: grouped, typed, bounded, documented.

Values come from flags, else the environment (TRAINING_SERVICE_GROUP__NAME), else a TOML file, else the
defaults below, which need no configuration at all.
"""

from training_service.settings.service import LoggingSettings, MetricsSettings
from training_service.settings.settings import ENVIRONMENT_PREFIX, Settings, settings_model

__all__ = ["ENVIRONMENT_PREFIX", "LoggingSettings", "MetricsSettings", "Settings", "settings_model"]
