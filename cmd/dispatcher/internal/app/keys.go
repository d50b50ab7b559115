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

// completeKeys fills in the keys that the settings leave empty. On SQLite they are read from the data
// directory, and made there at the first start; with PostgreSQL the settings have been refused without them.
func completeKeys(c *console.Console, s *config.Settings, log *slog.Logger) error {
	if len(s.MasterKey) == 0 {
		key, _, err := keepKey(filepath.Join(s.DataDir, config.MasterKeyFile), log, config.NewMasterKey)
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
	key, made, err := keepKey(path, log, config.NewAdminKey)
	if err != nil {
		return fmt.Errorf("admin key: %w", err)
	}
	if len(key) < config.MinAdminKey {
		return console.Wrong("%s: the admin key %s", path, config.ShortAdminKey(key))
	}
	s.AdminKey = key
	if !made {
		return nil
	}
	log.Info("admin key was made", "file", path)
	// Only a person may see it, and only now: a log that is collected somewhere is no place for a key.
	if c.ErrTerminal {
		fmt.Fprintf(c.Err, "\n  admin key (shown once, kept in %s): %s\n\n", path, key)
	}
	return nil
}

// keepKey returns the key in the file, which is made if it is missing, and says whether it was.
func keepKey(path string, log *slog.Logger, make func() string) (key string, made bool, err error) {
	// Two tries: another process may make the file between our look and our link.
	for range 2 {
		key, err = config.ReadSecretFile(path)
		if err == nil {
			if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
				log.Warn("key file can be read by others; chmod it to 600", "file", path)
			}
			return key, false, nil
		}
		if _, statErr := os.Stat(path); !errors.Is(statErr, fs.ErrNotExist) {
			return "", false, err
		}
		key = make()
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

// writeKey writes a new file, mode 0600, complete and on disk before it has its name: a master key that is
// half written or lost with the power would make every stored secret unreadable.
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
