"""Copies a dataset from storage to the disk of every rank, and can read storage once for all of them.

    with reporting(group) as reporter, staged(group, job.data_uri, reporter) as folder:
        data = load(folder)

DATA_STAGING chooses the way (`ways.Way`). In every way except `none`, a rank holds only a few pieces of at
most `pieces.PIECE` bytes in memory, and every rank has the same files in the end. The hashes of the files are
compared between the ranks, and with the file SHA256SUMS if the dataset has one.

* `pieces` divides the files into pieces, reads them from storage and writes them to disk;
* `peers` sends pieces from rank to rank, and counts their bytes;
* `ways` are the ways in which pieces reach all ranks;
* `sums` computes and compares hashes;
* `kept` keeps staged datasets on disk for later jobs, up to a total size;
* `settings` reads the environment, and `stage` puts all of it together.
"""

from trainer_kit.staging.stage import staged as staged
