"""Trajectories in ATIF: made from samples, overlaid with reports of model calls, saved, read and validated."""

from osmosis_ai.rollout.trajectory.converter import convert_sample_to_trajectory
from osmosis_ai.rollout.trajectory.report import TrajectoryReport, report_from_response
from osmosis_ai.rollout.trajectory.save import save_trajectory

__all__ = ["TrajectoryReport", "convert_sample_to_trajectory", "report_from_response", "save_trajectory"]
