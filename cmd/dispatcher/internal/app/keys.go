package app

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
)

// completeKeys fills in keys that the settings leave empty. With SQLite it reads them from the data
// directory, where the first start generates them. With PostgreSQL both are required, so nothing is missing
// here.
func completeKeys(c *console.Console, s *config.Settings, log *slog.Logger) error {
	if len(s.MasterKey) == 0 {
		key, _, err := readOrMakeKey(filepath.Join(s.DataDir, config.MasterKeyFile), log, config.NewMasterKey)
		if err != nil {
			return fmt.Errorf("master key: %w", err)
		}
		if b, err := base64.StdEncoding.DecodeString(key); err != nil || len(b) != config.MasterKeyBytes {
			return fmt.Errorf("master key: %s is not the base64 of %d bytes",
				filepath.Join(s.DataDir, config.MasterKeyFile), config.MasterKeyBytes)
		}
		s.MasterKey = []string{key}
	}
	if s.AdminKey != "" {
		return nil
	}
	path := filepath.Join(s.DataDir, config.AdminKeyFile)
	key, isNew, err := readOrMakeKey(path, log, config.NewAdminKey)
	if err != nil {
		return fmt.Errorf("admin key: %w", err)
	}
	if len(key) < config.MinAdminKey {
		return console.Wrong("%s: the admin key %s", path, config.ShortAdminKey(key))
	}
	s.AdminKey = key
	if !isNew {
		return nil
	}
	log.Info("generated admin key", "file", path)
	// Print the key only on a terminal and only now: logs are collected, and a key must not be in them.
	if c.ErrTerminal {
		fmt.Fprintf(c.Err, "\n  admin key (printed once, stored in %s): %s\n\n", path, key)
	}
	return nil
}

// readOrMakeKey returns the key in a file. It generates a missing one and reports that.
func readOrMakeKey(
	path string, log *slog.Logger, generate func() string,
) (key string, isNew bool, err error) {
	// Try twice: another process may create the file between the read and the link.
	for range 2 {
		key, err = config.ReadSecretFile(path)
		if err == nil {
			if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
				log.Warn("key file is readable by other users; set its mode to 600", "file", path)
			}
			return key, false, nil
		}
		if _, statErr := os.Stat(path); !errors.Is(statErr, fs.ErrNotExist) {
			return "", false, err
		}
		key = generate()
		err = writeKey(path, key)
		if err == nil {
			return key, true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", false, err
		}
	}
	return "", false, err
}

// writeKey writes a new file with mode 0600. It syncs the content before the file gets its name: a master key
// that is incomplete or lost in a power failure would make all stored secrets unreadable.
func writeKey(path, key string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(key + "\n")
	err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return machine.SyncDir(filepath.Dir(path))
}
