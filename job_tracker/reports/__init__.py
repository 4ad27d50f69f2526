"""Reports of training processes, by printed lines or by calls with a token."""

from job_tracker.reports.buffer import ReportBuffer
from job_tracker.reports.follower import LogFollower
from job_tracker.reports.keys import ReportKeys
from job_tracker.reports.report import Report
from job_tracker.reports.report_environment import ReportEnvironment
from job_tracker.reports.tokens import ReportTokens

__all__ = ["LogFollower", "Report", "ReportBuffer", "ReportEnvironment", "ReportKeys", "ReportTokens"]
