"""TensorFlow on the questions: `workers` learn in step, `parameter_server` each at its own pace."""
