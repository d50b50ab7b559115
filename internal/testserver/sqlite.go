package testserver

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// SQLiteTemplate returns a function that returns the bytes of a SQLite file. The first call makes the file: fill gets the
// URL of one that does not exist yet, and must close its connections. A test that needs a migrated database writes the
// bytes to a file of its own and need not migrate one.
func SQLiteTemplate(fill func(url string) error) func() ([]byte, error) {
	return sync.OnceValues(func() (file []byte, err error) {
		dir, err := os.MkdirTemp("", "sqlite-*")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		path := filepath.Join(dir, "template.db")
		if err := fill("sqlite:" + path); err != nil {
			return nil, err
		}
		return os.ReadFile(path)
	})
}
