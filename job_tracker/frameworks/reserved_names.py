"""Reserved names of environment variables. Requests may set none of them, the configuration only some."""

# Names that are set by the service, or by a launcher that it starts.
_SERVICE_NAMES = frozenset(
    (
        *("JOB_ID", "JOB_ATTEMPT", "ALGORITHM_NAME", "MODEL_NAME", "MODEL_URI", "MODEL_BUCKET"),
        *("CHECKPOINT_URI", "GROUP_TOKEN", "METADATA_STORE_SERVER", "WORLD_SIZE", "RANK", "LOCAL_RANK"),
        *("LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "HOME", "TMPDIR"),
    )
)
_SERVICE_PREFIXES = (
    "TRAINING_",
    "REPORT_",
    "PET_",
    "TORCHELASTIC_",
    "JAX_",
    "HOROVOD_",
    "OMPI_",
    "PMI_",
    "MPI_",
    "PMIX_",
    "PRTE_",
)

# Names that change how programs and libraries are found and loaded, what they trust, or where they read and
# write. The list cannot be complete. A request for an algorithm can set only the algorithm's parameters, so
# the list only keeps such a name from being declared as a parameter by mistake. A request with an uploaded
# program can set any variable that is not in the list. A prefix stands for a family of names.
_RESERVED_NAMES = _SERVICE_NAMES.union(
    (
        # shells, and programs that other programs start
        *("PATH", "USER", "LOGNAME", "SHELL", "SHELLOPTS", "BASHOPTS", "PWD", "OLDPWD", "CDPATH", "IFS"),
        *("ENV", "_", "PS1", "PS2", "PS3", "PS4", "PROMPT_COMMAND", "TEMP", "TMP", "BROWSER", "EDITOR"),
        *("VISUAL", "PAGER", "MANPAGER", "TERMINFO", "TERMINFO_DIRS", "TERMCAP", "VIRTUAL_ENV"),
        # compilers, which PyTorch and Triton start
        *("CC", "CXX", "CPP", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED", "MAKEFLAGS"),
        *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH"),
        # the C library, and how it resolves names
        *("GCONV_PATH", "LOCPATH", "NLSPATH", "GETCONF_DIR", "TZDIR", "HOSTNAME", "HOSTALIASES"),
        *("LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF"),
        # trust, and access to the network
        *("REQUESTS_CA_BUNDLE", "NETRC", "SASL_PATH", "GNUPGHOME", "HTTP_PROXY", "HTTPS_PROXY"),
        *("FTP_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "ftp_proxy", "all_proxy"),
        *("no_proxy", "grpc_proxy"),
        # other languages and libraries
        *("CLASSPATH", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "R_HOME", "R_LIBS", "R_PROFILE", "R_ENVIRON"),
        *("NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "MPLBACKEND", "MPLCONFIGDIR"),
        "CHECKPOINT_WEIGHTS_ONLY",  # only configuration may allow checkpoints that run code
    )
)
_RESERVED_PREFIXES = (
    *_SERVICE_PREFIXES,
    # loaders, shells, tools
    *("LD_", "DYLD_", "GLIBC_", "MALLOC_", "BASH_", "LESS", "GIT_", "SSH_", "GCC_", "XDG_", "ASAN_"),
    *("LSAN_", "MSAN_", "TSAN_", "UBSAN_"),
    # interpreters and their extensions
    *("PYTHON", "IPYTHON", "JUPYTER_", "PYTEST_", "PYDEVD_", "COVERAGE_", "OTEL_", "PIP_", "UV_"),
    *("CONDA_", "SETUPTOOLS_", "PERL", "RUBY", "NPM_", "npm_", "JAVA_", "JULIA_", "LUA_"),
    *("PHP_", "DOTNET_"),
    # trust and credentials
    *("SSL_", "OPENSSL_", "CURL_", "GRPC_", "KRB5", "LDAP", "AWS_", "BOTO_", "GOOGLE_", "CLOUDSDK_"),
    *("AZURE_", "MINIO_", "FSSPEC_", "KUBERNETES_", "DOCKER_"),
    # frameworks: these variables affect how they load libraries, compile, cache and unpickle
    *("TORCH", "PYTORCH_", "TRITON_", "TF_", "TFDS_", "TENSORFLOW_", "KERAS_", "XLA_", "PJRT_", "TPU_"),
    *("LIBTPU_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "NUMBA_", "CUPY_", "DASK_", "RAY_"),
    # devices, and communication libraries
    *("CUDA_", "CUDNN_", "CUBLAS_", "CUBLASLT_", "NVCC_", "NVRTC_", "NVTX_", "NSYS_", "NVIDIA_"),
    *("ROCM_", "ROCR_", "ROCP", "HIP_", "HSA_", "OMP_TOOL", "NCCL_", "RCCL_", "GLOO_", "UCX_", "UCC_"),
    *("FI_", "OFI_", "IBV_", "RDMAV_", "OPAL_", "ORTE_", "MPICH_", "HYDRA_", "I_MPI_", "SLURM_"),
)


def is_reserved(name: str) -> bool:
    """Return whether this name is reserved: no request may set it, and no parameter may have this name."""
    return name in _RESERVED_NAMES or name.startswith(_RESERVED_PREFIXES)


def is_set_by_service(name: str) -> bool:
    """Return whether the service sets this variable. No parameter or option may then have its name."""
    return name in _SERVICE_NAMES or name.startswith(_SERVICE_PREFIXES)
