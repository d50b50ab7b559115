// Package backup copies the SQLite database of a server, which may be running, together with its master key.
//
// A backup is a directory with the name dispatcher-TIME that holds dispatcher.db and master.key. It gets this
// name only after the copy was synced and checked, so a directory with such a name is complete. All backups
// of a directory belong to one installation, which the copies name. docs/guide/backup.md has the steps of a
// restore.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// Command makes a backup.
type Command struct {
	config.Flags
	Dest     string `arg:"" name:"dest" help:"Directory of the backups of this server alone. It is created if it is missing, and should be on another disk."`
	Keep     int    `default:"7" placeholder:"N" help:"Remove older backups in DEST, so that N are left. 0 keeps all. Default: 7."`
	NoKey    bool   `help:"Leave out master.key. Then keep it in another place: a backup is useless without it."`
	Textfile string `placeholder:"FILE" help:"Write the time of this backup to FILE for the textfile collector of Prometheus's node_exporter. The name ends with .prom."`
}

// Help is the text below the summary of backup --help.
func (*Command) Help() string {
	return "Takes the settings of serve, and can run while it runs. It copies SQLite only. With PostgreSQL " +
		"use pg_dump or the backups of your provider, and keep master_key; Redis needs no backup."
}

// The names in the directory of the backups. A name begins with a dot until the backup is complete, and again
// while it is removed.
const (
	timeLayout = "20060102T150405.000Z"
	partial    = ".partial-"
	lockName   = ".lock"
)

var backupName = regexp.MustCompile(`^dispatcher-\d{8}T\d{6}\.\d{3}Z$`)

// Run makes a backup, and then removes the oldest ones.
func (cmd *Command) Run(ctx context.Context, c *console.Console) error {
	l, err := config.LoadStorage(c, &cmd.Flags)
	if err != nil {
		return err
	}
	if err := cmd.check(&l.Settings); err != nil {
		return err
	}
	made, err := cmd.backUp(ctx, c, &l.Settings, time.Now())
	if made != nil {
		fmt.Fprintf(c.Out, "%s: %s, %d callbacks, %d of them open\n", made.path, console.SizeText(made.size),
			made.Callbacks, made.Open)
	}
	if err != nil {
		return l.Clean(fmt.Errorf("backup: %w", err))
	}
	return nil
}

// check refuses what the command cannot do.
func (cmd *Command) check(s *config.Settings) error {
	switch {
	case s.Postgres():
		return console.Wrong("backup copies SQLite, and database_url names PostgreSQL: use pg_dump or the " +
			"backups of your provider, and keep master_key (docs/guide/backup.md)")
	case cmd.Keep < 0:
		return console.Wrong("--keep %d is negative; 0 keeps all backups", cmd.Keep)
	case cmd.Textfile != "" && filepath.Ext(cmd.Textfile) != ".prom":
		return console.Wrong("--textfile %s does not end with .prom: the textfile collector would not read "+
			"it", cmd.Textfile)
	}
	return nil
}

// made describes a complete backup.
type made struct {
	sqlstore.Backup
	path string
	size uint64
}

// backUp makes a backup, removes the oldest ones and writes the metric. If it returns a backup and an error,
// the backup is complete, but needs the user's attention.
func (cmd *Command) backUp(
	ctx context.Context, c *console.Console, s *config.Settings, now time.Time,
) (*made, error) {
	source, err := inspect(ctx, s.SQLitePath())
	if err != nil {
		return nil, err
	}
	key, err := cmd.readKeys(c, s, source.Sealed)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cmd.Dest, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the backups: %w", err)
	}
	lock, err := machine.LockFile(filepath.Join(cmd.Dest, lockName))
	if errors.Is(err, machine.ErrLocked) {
		err = fmt.Errorf("another backup to %s is running", cmd.Dest)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := checkOwner(ctx, cmd.Dest, source.Installation); err != nil {
		return nil, err
	}
	// Only the owner of the lock makes or removes backups, so these are what a killed process left.
	if err := removeHidden(cmd.Dest); err != nil {
		return nil, fmt.Errorf("remove an incomplete backup: %w", err)
	}
	if err := checkSpace(source.Size, cmd.Dest); err != nil {
		return nil, err
	}
	m, err := cmd.write(ctx, s.SQLitePath(), key, "dispatcher-"+now.UTC().Format(timeLayout))
	if err != nil {
		return nil, err
	}
	if err := cmd.removeOld(filepath.Base(m.path)); err != nil {
		return m, fmt.Errorf("remove old backups: %w", err)
	}
	if err := cmd.writeTextfile(now); err != nil {
		return m, fmt.Errorf("write the textfile: %w", err)
	}
	return m, nil
}

func inspect(ctx context.Context, database string) (sqlstore.Source, error) {
	_, err := os.Stat(database)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s does not exist; check data_dir and database_url", database)
	}
	if err != nil {
		return sqlstore.Source{}, err
	}
	return sqlstore.InspectSQLite(ctx, database)
}

// checkOwner refuses a directory whose newest backup is one of another installation: --keep would remove the
// backups of that one. A backup from before the first start of a server has no installation.
func checkOwner(ctx context.Context, dest, installation string) error {
	names, err := backups(dest)
	if err != nil || len(names) == 0 {
		return err
	}
	newest := filepath.Join(dest, names[len(names)-1])
	owner, err := sqlstore.CopyInstallation(ctx, filepath.Join(newest, config.DatabaseFileName))
	switch {
	case err != nil:
		return fmt.Errorf("find the owner of the backups: read the database in %s: %w; choose another "+
			"directory, or move this backup away", newest, err)
	case owner != "" && owner != installation:
		return fmt.Errorf("%s has the backups of another database, and --keep would remove them: choose "+
			"another directory, or move these backups away if this database replaces that one", dest)
	}
	return nil
}

// checkSpace refuses a backup that would fill the disk: if the database is on the same one, SQL would fail.
func checkSpace(size int64, dest string) error {
	free, _, err := machine.DiskSpace(dest)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the free space of %s: %w", dest, err)
	}
	if need := uint64(size) + uint64(size)/10; free < need {
		return fmt.Errorf("%s has %s free, and the copy needs %s: free space, or choose another directory",
			dest, console.SizeText(free), console.SizeText(need))
	}
	return nil
}

// readKeys checks that the master keys of the server decrypt the secrets of the database, and returns the key
// to copy. It is empty with the setting master_key, which is kept where it comes from. It is also empty with
// --no-key: then the file is not read, and a key that the setting misses causes a warning only.
func (cmd *Command) readKeys(
	c *console.Console, s *config.Settings, sealed []store.SealedRow,
) (toCopy string, err error) {
	keys := s.MasterKey
	if len(keys) == 0 {
		if cmd.NoKey {
			return "", nil
		}
		toCopy, err = config.ReadSecretFile(filepath.Join(s.DataDir, config.MasterKeyFile))
		if err != nil {
			return "", fmt.Errorf("read the master key: %w", err)
		}
		keys = []string{toCopy}
	}
	ring, err := secret.NewKeyring(keys)
	if err != nil {
		return "", fmt.Errorf("read the master key: %w", err)
	}
	var problems []string
	for _, p := range ring.Check(sealed) {
		problems = append(problems, p.String())
	}
	if len(problems) == 0 {
		return toCopy, nil
	}
	needed := "a restore needs another master key: " + strings.Join(problems, "; ")
	if cmd.NoKey {
		fmt.Fprintf(c.Err, "warning: %s\n", console.Printable(needed))
		return "", nil
	}
	return "", fmt.Errorf("nothing was copied, because %s; give all keys as master_key and keep them, or "+
		"use --no-key if a key is lost", needed)
}

// write makes the backup with this name.
func (cmd *Command) write(ctx context.Context, database, key, name string) (m *made, err error) {
	dir := filepath.Join(cmd.Dest, partial+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	m = &made{path: filepath.Join(cmd.Dest, name)}
	file := filepath.Join(dir, config.DatabaseFileName)
	m.Backup, err = sqlstore.BackupSQLite(ctx, database, file)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	m.size = uint64(info.Size())
	if key != "" {
		if err := writeSynced(filepath.Join(dir, config.MasterKeyFile), key+"\n", 0o600); err != nil {
			return nil, fmt.Errorf("copy the master key: %w", err)
		}
	}
	if err := machine.SyncDir(dir); err != nil {
		return nil, err
	}
	if err := os.Rename(dir, m.path); err != nil {
		return nil, err
	}
	return m, machine.SyncDir(cmd.Dest)
}

// removeOld removes the oldest backups, so that cmd.Keep are left. The one just made stays, also if the clock
// was ahead at an earlier one.
func (cmd *Command) removeOld(justMade string) error {
	names, err := backups(cmd.Dest)
	if err != nil || cmd.Keep == 0 {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == justMade })
	for _, name := range names[:max(0, len(names)+1-cmd.Keep)] {
		// Rename first: half of a backup must not look like a whole one.
		err := os.Rename(filepath.Join(cmd.Dest, name), filepath.Join(cmd.Dest, partial+name))
		if err != nil {
			return err
		}
	}
	return removeHidden(cmd.Dest)
}

// backups returns the names of the complete backups, oldest first.
func backups(dest string) (names []string, err error) {
	entries, err := os.ReadDir(dest) // sorted by name, and so by time
	for _, e := range entries {
		if e.IsDir() && backupName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// removeHidden removes the directories of incomplete backups.
func removeHidden(dest string) error {
	entries, err := os.ReadDir(dest)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, hidden := strings.CutPrefix(e.Name(), partial)
		if !hidden || !backupName.MatchString(name) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dest, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// writeTextfile writes the metric. The collector never sees half a file.
func (cmd *Command) writeTextfile(now time.Time) error {
	if cmd.Textfile == "" {
		return nil
	}
	const name = "dispatcher_backup_last_success_timestamp_seconds"
	text := fmt.Sprintf("# HELP %s Start of the last backup that was completed and checked.\n"+
		"# TYPE %s gauge\n%s %d\n", name, name, name, now.Unix())
	fresh := cmd.Textfile + ".new"
	// The collector runs as another user.
	if err := writeSynced(fresh, text, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, cmd.Textfile)
}

// writeSynced writes a file and syncs it.
func writeSynced(path, text string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}
