package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/pprof/profile"
)

// keepProfile fetches a CPU profile of so many seconds into a directory, which it makes.
func (d *dispatcher) keepProfile(dir, name string, seconds int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second+time.Minute)
	defer cancel()
	data, err := fetch(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", d.ops, seconds))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), data, 0o644)
}

// joinProfiles writes the profiles of a directory as one, for builds to be optimized by: without the paths and marks of the machine
// and the binary, which a build does not need.
func joinProfiles(dir, file string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.pprof"))
	if err != nil {
		return err
	}
	all := make([]*profile.Profile, len(names))
	for i, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if all[i], err = profile.ParseData(data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	joined, err := profile.Merge(all)
	if err != nil {
		return fmt.Errorf("join %d profiles: %w", len(all), err)
	}
	joined.Comments, joined.DocURL, joined.TimeNanos = nil, "", 0
	for _, f := range joined.Function {
		f.Filename = ""
	}
	for _, m := range joined.Mapping {
		m.File, m.BuildID = "", ""
	}
	var out bytes.Buffer
	if err := joined.Compact().Write(&out); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
