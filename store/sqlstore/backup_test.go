package sqlstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackupHasEveryCommitFromBefore copies a database while callbacks are accepted. The copy has all those
// that were accepted before the call, and opens as a database.
func TestBackupHasEveryCommitFromBefore(t *testing.T) {
	t.Parallel()
	url := sqliteURL(t)
	db := openSlow(t, url)
	first := newDrafts(300, testNow)
	must(db.Accept(t.Context(), first))
	ended := make(chan int64)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		var n int64
		for ctx.Err() == nil {
			must(db.Accept(t.Context(), newDrafts(10, testNow)))
			n += 10
		}
		ended <- n
	}()
	to := filepath.Join(t.TempDir(), "copy 1%.db")
	b, err := BackupSQLite(t.Context(), strings.TrimPrefix(url, "sqlite:"), to)
	stop()
	least, most := int64(len(first)), int64(len(first))+<-ended
	if err != nil {
		t.Fatal(err)
	}
	if b.Callbacks < least || b.Callbacks > most || b.Open != b.Callbacks {
		t.Errorf("%+v, want %d to %d callbacks", b, least, most)
	}
	info := must(os.Stat(to))
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the copy: %s", info.Mode())
	}
	if size := must(InspectSQLite(t.Context(), to)).Size; size != info.Size() {
		t.Errorf("size: %d, and the compact file has %d", size, info.Size())
	}
	restored := openSlow(t, "sqlite:"+to)
	for _, d := range first {
		must(restored.Get(t.Context(), d.Callback.Project, d.Callback.ID))
	}
}

// TestBackupRefuses checks that a damaged, an incomplete and a foreign file are no backup.
func TestBackupRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := strings.TrimPrefix(sqliteURL(t), "sqlite:")
	to := func(name string) string { return filepath.Join(dir, name) }
	refuses := func(name, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	_, err := BackupSQLite(t.Context(), to("absent"), to("1"))
	refuses("absent", "unable to open database file", err)
	if _, err := os.Stat(to("absent")); err == nil {
		t.Error("the absent database was created")
	}
	if err := os.WriteFile(to("empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = BackupSQLite(t.Context(), to("empty"), to("2"))
	refuses("foreign", "no tables of dispatcher", err)
	_, err = BackupSQLite(t.Context(), from, to("empty"))
	refuses("existing", "file exists", err)

	must(BackupSQLite(t.Context(), from, to("3")))
	_, err = checkCopy(t.Context(), to("3"), 7)
	refuses("incomplete", "ends with commit 0, and the database had commit 7", err)
	damage(t, to("3"))
	_, err = checkCopy(t.Context(), to("3"), 0)
	refuses("damaged", "", err)
}

// damage overwrites the second half of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(content) / 2; i < len(content); i++ {
		content[i] = 0x5a
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
