package app

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
)

// A disk exports the free space and the files of SQLite. It reads them at each scrape, which takes
// microseconds. A value that cannot be read is absent.
type disk struct {
	path, dir string
}

var (
	freeBytes = prometheus.NewDesc(metric.Prefix+"data_free_bytes",
		"Bytes that can still be written to the disk of SQLite's directory.", nil, nil)
	sqliteBytes = prometheus.NewDesc(metric.Prefix+"sqlite_bytes",
		"Size of SQLite's files: db is the database, wal its write-ahead log.", []string{"file"}, nil)
)

// Describe implements prometheus.Collector.
func (disk) Describe(to chan<- *prometheus.Desc) {
	to <- freeBytes
	to <- sqliteBytes
}

// Collect implements prometheus.Collector.
func (d disk) Collect(to chan<- prometheus.Metric) {
	if free, _, err := machine.DiskSpace(d.dir); err == nil {
		to <- prometheus.MustNewConstMetric(freeBytes, prometheus.GaugeValue, float64(free))
	}
	for file, path := range map[string]string{"db": d.path, "wal": d.path + "-wal"} {
		size := 0.0
		info, err := os.Stat(path)
		switch {
		case err == nil:
			size = float64(info.Size())
		case !os.IsNotExist(err):
			continue
		}
		to <- prometheus.MustNewConstMetric(sqliteBytes, prometheus.GaugeValue, size, file)
	}
}
