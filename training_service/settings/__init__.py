"""The settings of the service, in groups.

A value comes from the first of these sources that has it: command line, environment
(TRAINING_SERVICE_GROUP__NAME), TOML file, default. Every setting has a default.
"""

from training_service.settings.service import LoggingSettings, MetricsSettings
from training_service.settings.settings import ENVIRONMENT_PREFIX, Settings, settings_model

__all__ = ["ENVIRONMENT_PREFIX", "LoggingSettings", "MetricsSettings", "Settings", "settings_model"]
