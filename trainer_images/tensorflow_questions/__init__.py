"""TensorFlow on the questions: synchronous `workers`, and an asynchronous `parameter_server`."""
