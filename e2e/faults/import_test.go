package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// An import that is killed in the middle and gone on with makes nothing twice.
func TestImportKilledInTheMiddleMakesNothingTwice(t *testing.T) {
	mostlyWaits(t)
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	p := harness.Serve(t, harness.Launch{On: b})
	const n = 20_000
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, `{"url":"http://127.0.0.1:1/","ref":"order-%d","payload":{"n":%d},"delay":"2h"}`+"\n",
			i, i)
	}
	path := filepath.Join(t.TempDir(), "orders.ndjson")
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"import", path, "--server", p.Base, "--key", harness.AdminKey}
	reached := func() (line int) {
		var mark struct{ Line int }
		content, err := os.ReadFile(path + ".progress")
		if err == nil {
			err = json.Unmarshal(content, &mark)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Errorf("the progress is never half written: %v", err)
		}
		return mark.Line
	}
	for kill := range 3 {
		more := []string{"--rate", "8000/s"}
		if kill > 0 {
			more = append(more, "--resume")
		}
		first := reached()
		cmd := exec.Command(harness.Binary(t), slices.Concat(args, more)...)
		cmd.Env, cmd.SysProcAttr = harness.Environment(), harness.ChildAttr()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, time.Minute, "the import has come further", func() error {
			if line := reached(); line < first+2000 {
				return fmt.Errorf("line %d", line)
			}
			return nil
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // its error is the kill
		t.Logf("killed after line %d of %d", reached(), n)
	}
	if got := harness.Command(t, 2*time.Minute, nil, append(args, "--resume")...); got.Code != 0 {
		t.Fatalf("the import ended with %d\n%s%s", got.Code, got.Stdout, got.Stderr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db := b.Database(t)
	var rows, refs int
	if err := db.QueryRowContext(ctx, `SELECT count(*), count(DISTINCT ref) FROM callbacks`).Scan(&rows,
		&refs); err != nil {
		t.Fatal(err)
	}
	if rows != n || refs != n {
		t.Errorf("SQL has %d callbacks of %d orders, want %d", rows, refs, n)
	}
}
