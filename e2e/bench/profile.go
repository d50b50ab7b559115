package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/pprof/profile"
)

// profile begins profiles of the dispatcher's CPU time and allocations, if they are wanted, and returns a function
// that waits for their end. They may last longer than the phase: an idle process adds nothing to them. Of several
// rounds the last one's profiles remain.
func (s *session) profile(phase string) (wait func()) {
	if s.profiles == "" {
		return func() {}
	}
	path := filepath.Join(s.profiles, s.system.name+"-"+phase)
	done := make(chan error, 2)
	for file, of := range map[string]string{".cpu.pprof": "profile", ".allocs.pprof": "allocs"} {
		go func() { done <- s.fetchTo(path+file, fmt.Sprintf("%s?seconds=%d", of, max(1, s.n/5000))) }()
	}
	return func() {
		for range cap(done) {
			s.check("profile", <-done)
		}
	}
}

func (d *dispatcher) fetchTo(file, of string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	data, err := d.fetch(ctx, d.ops+"/debug/pprof/"+of)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// joinProfiles writes the CPU profiles of a directory as one, for builds to be optimized by: without the
// paths of the machine and the marks of the binary, which a build does not need.
func joinProfiles(dir, file string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.cpu.pprof"))
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
