package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// smallDisk mounts a file system in memory of that size, and returns where.
func (tr *trial) smallDisk(size string) string {
	tr.Helper()
	dir, err := os.MkdirTemp("", "small-disk-*")
	if err != nil {
		tr.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		os.Remove(dir) // what matters is said next
		tr.Fatalf("mount a file system of %s (only root may): %v", size, err)
	}
	tr.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			tr.Errorf("unmount %s: %v", dir, err)
		}
		if err := os.Remove(dir); err != nil {
			tr.Error(err)
		}
	})
	return dir
}

// fill takes all that is left on the disk of that directory, and returns how to give it back.
func fill(dir string) (free func() error, err error) {
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return func() error { return os.Remove(name) }, nil
}

// postgresDiskFull takes the last byte of the file system that PostgreSQL keeps everything on. It refuses to
// grow its tables, then panics at its log, and may end. With room again, and started again if it has ended,
// all goes on.
func postgresDiskFull(tr *trial) {
	dir := tr.smallDisk("192m")
	place := filepath.Join(dir, "server")
	if err := os.Mkdir(place, 0o700); err != nil {
		tr.Fatal(err)
	}
	// Segments of 1 MB: with the usual ones the log has room for minutes of this load.
	pg := testserver.NewPostgresIn(tr, place, "--wal-segsize=1")
	for _, setting := range []string{"min_wal_size = '2MB'", "max_wal_size = '8MB'", "wal_recycle = off"} {
		if err := pg.Exec(tr.Context(), "ALTER SYSTEM SET "+setting); err != nil {
			tr.Fatal(err)
		}
	}
	if err := pg.Exec(tr.Context(), "SELECT pg_reload_conf()"); err != nil {
		tr.Fatal(err)
	}
	tr.ownServer(pg)
	began := time.Now()
	ld, w := tr.underWay()
	var free func() error
	tr.MarkFault()
	free, err := fill(dir)
	if err != nil {
		tr.Fatal(err)
	}
	harness.Eventually(tr, time.Minute, "SQL cannot commit", func() error {
		// The rest of a segment of the log lasts for a minute: ask for a new one. An error is what is
		// awaited.
		pg.Exec(tr.Context(), "SELECT pg_switch_wal()")
		if status, _, err := w.p.Readyz(); err != nil || status != http.StatusServiceUnavailable {
			return fmt.Errorf("/readyz says %d %w", status, err)
		}
		return nil
	})
	tr.blackout(w, "disk full", 6*time.Second, func() error { return nil }, func() error {
		ended := pg.HasEnded()
		tr.Remark("the server had ended: %t", ended)
		if err := free(); err != nil {
			return err
		}
		if ended {
			pg.Start(tr)
		}
		return nil
	})
	tr.conclude(ld, w, began, judge.Bounds{})
}

// sqliteDiskFull takes the last byte of the data directory's file system.
func sqliteDiskFull(tr *trial) {
	dir := tr.smallDisk("64m")
	tr.UseBackend(harness.Backend{Name: tr.Backend.Name, DataDir: dir, Prefix: "e2e"})
	began := time.Now()
	ld, w := tr.underWay()
	var free func() error
	tr.blackout(w, "disk full", 6*time.Second, func() (err error) {
		free, err = fill(dir)
		// What SQLite has room for in its files it goes on to use.
		harness.Eventually(tr, time.Minute, "SQL cannot commit", func() error {
			if status, _, err := w.p.Readyz(); err != nil || status != http.StatusServiceUnavailable {
				return fmt.Errorf("/readyz says %d %w", status, err)
			}
			return nil
		})
		return err
	}, func() error { return free() })
	tr.conclude(ld, w, began, judge.Bounds{})
}
