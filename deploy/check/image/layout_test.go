package image

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/seed-ff5a32d8/dispatcher/deploy/check/program"
)

// user is the user of the image, whose only directory is /data.
const user = 65532

// An entry is a file or a directory of the image.
type entry struct {
	name    string
	mode    int64
	owner   int
	content []byte // nil: a directory
}

// entries are what the last stage of the Dockerfile copies, and the certificates of its base image, for which
// those of the test stand. The SBOM and the licence texts are left out: `make reproducible` makes them.
func entries(t *testing.T, certificates []byte) []entry {
	t.Helper()
	binary, err := os.ReadFile(program.Build(t))
	if err != nil {
		t.Fatal(err)
	}
	built := map[string]entry{
		"/out/dispatcher": {mode: 0o755, content: binary},
		"/out/doc":        {mode: 0o755}, "/out/data": {mode: 0o755},
	}
	all := []entry{{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: certificates}}
	for _, command := range lastStage(t) {
		c, isCopy := command.(*instructions.CopyCommand)
		if !isCopy {
			continue
		}
		source := c.SourcePaths[0]
		e, known := built[source]
		if c.From == "" {
			e.mode = 0o644
			e.content, err = os.ReadFile(program.Root + source)
			known = err == nil
		}
		if !known || len(c.SourcePaths) != 1 {
			t.Fatalf("this test does not know what %q copies: %v", c, err)
		}
		if c.Chown != "" {
			e.owner = user
		}
		e.name = strings.TrimPrefix(c.DestPath, "/")
		all = append(all, e)
	}
	return all
}

// layer is a tar file with the entries.
func layer(t *testing.T, all []entry) v1.Layer {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, e := range all {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.content)),
			Typeflag: tar.TypeReg}
		if e.content == nil {
			h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// write makes an image with the configuration of the Dockerfile, writes it as an OCI layout, and returns the
// image that the layout has.
func write(t *testing.T, config v1.Config, all []entry) v1.Image {
	t.Helper()
	made, err := mutate.AppendLayers(empty.Image, layer(t, all))
	if err != nil {
		t.Fatal(err)
	}
	file, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file.Config, file.OS, file.Architecture = config, "linux", "amd64"
	made, err = mutate.ConfigFile(made, file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(made); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := made.Digest()
	if err != nil {
		t.Fatal(err)
	}
	read, err := index.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(read); err != nil {
		t.Errorf("the layout is wrong: %v", err)
	}
	if got, err := read.ConfigFile(); err != nil || !reflect.DeepEqual(got.Config, config) {
		t.Errorf("the image has the configuration %+v, %v, want %+v", got.Config, err, config)
	}
	return read
}

// unpack extracts an image below a directory, and checks that it has the entries and nothing else, such as a
// shell.
func unpack(t *testing.T, image v1.Image, dir string, all []entry) {
	t.Helper()
	flat := mutate.Extract(image)
	defer flat.Close()
	var names, want []string
	for _, e := range all {
		want = append(want, e.name)
	}
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		names = append(names, name)
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, h.FileInfo().Mode().Perm())
		} else {
			var content []byte
			content, err = io.ReadAll(r)
			if err == nil {
				err = os.WriteFile(path, content, h.FileInfo().Mode().Perm())
			}
		}
		if err == nil {
			err = os.Chown(path, h.Uid, h.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the image has %q, want %q", names, want)
	}
}
