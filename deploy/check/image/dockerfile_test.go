package image

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/opencontainers/go-digest"

	"github.com/seed-ff5a32d8/dispatcher/deploy/check/program"
)

// bases stands for the registries: it answers with the part of a base image's configuration that is known.
type bases struct{}

func (bases) ResolveImageConfig(
	_ context.Context, ref string, _ sourceresolver.Opt,
) (string, digest.Digest, []byte, error) {
	config := `{"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin"]},
		"rootfs": {"type": "layers", "diff_ids": []}}`
	_, sum, _ := strings.Cut(ref, "@")
	return ref, digest.Digest(sum), []byte(config), nil
}

func dockerfile(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(program.Root + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestDockerfileLint runs all rules of `docker build --check`, the experimental ones too.
func TestDockerfileLint(t *testing.T) {
	if wrong := lint(t, dockerfile(t)); len(wrong) > 0 {
		t.Errorf("Dockerfile:\n%s", strings.Join(wrong, "\n"))
	}
	// The linter itself works.
	for text, want := range map[string]string{
		"FROM scratch\nCMD serve\n":                               "JSONArgsRecommended",
		"from scratch AS a\nCOPY a b\n":                           "ConsistentInstructionCasing",
		"FROM scratch\nENV ADMIN_KEY=abc\n":                       "SecretsUsedInArgOrEnv",
		"FROM scratch\nCOPY --from=b /a /\n\nHEALTHCHECK NEVER\n": "Unknown type",
		"# other is a stage\nFROM scratch AS one\n":               "InvalidDefinitionDescription",
	} {
		if wrong := strings.Join(lint(t, []byte(text)), "\n"); !strings.Contains(wrong, want) {
			t.Errorf("%q: %q, want %s", text, wrong, want)
		}
	}
}

func lint(t *testing.T, text []byte) (wrong []string) {
	t.Helper()
	text = append([]byte("# check=experimental=all\n"), text...)
	source := llb.NewSourceMap(nil, "Dockerfile", "Dockerfile", text)
	source.Definition = &llb.Definition{}
	results, err := dockerfile2llb.DockerfileLint(t.Context(), text, dockerfile2llb.ConvertOpt{
		SourceMap: source, MetaResolver: bases{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if results.Error != nil {
		wrong = append(wrong, results.Error.Message)
	}
	for _, w := range results.Warnings {
		wrong = append(wrong, w.RuleName+": "+w.Detail)
	}
	return wrong
}

// configuration is the configuration of the image that the Dockerfile describes, as BuildKit makes it.
func configuration(t *testing.T, args map[string]string) v1.Config {
	t.Helper()
	return configurationOf(t, dockerfile(t), args)
}

// configurationOf is configuration for the text of another Dockerfile.
func configurationOf(t *testing.T, text []byte, args map[string]string) v1.Config {
	t.Helper()
	result, err := dockerfile2llb.Dockerfile2LLB(t.Context(), text, dockerfile2llb.ConvertOpt{
		Config:       dockerui.Config{BuildArgs: args},
		SourceMap:    llb.NewSourceMap(nil, "Dockerfile", "Dockerfile", text),
		MetaResolver: bases{},
	})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(result.Image)
	if err != nil {
		t.Fatal(err)
	}
	var file v1.ConfigFile
	if err := json.Unmarshal(encoded, &file); err != nil {
		t.Fatal(err)
	}
	return file.Config
}

// TestConfiguration checks what Docker and Kubernetes read from the image.
func TestConfiguration(t *testing.T) {
	c := configuration(t, map[string]string{"VERSION": "1.2.3", "REVISION": "abc"})
	if c.User != "65532:65532" || c.StopSignal != "SIGTERM" || c.Shell != nil {
		t.Errorf("user %q, stop signal %q, shell %q", c.User, c.StopSignal, c.Shell)
	}
	if !slices.Equal(c.Entrypoint, []string{"/dispatcher"}) || !slices.Equal(c.Cmd, []string{"serve"}) {
		t.Errorf("it runs %q %q", c.Entrypoint, c.Cmd)
	}
	h := c.Healthcheck
	if h == nil || !slices.Equal(h.Test, []string{"CMD", "/dispatcher", "healthcheck"}) || h.Timeout == 0 ||
		h.Interval == 0 || h.StartPeriod == 0 || h.Retries == 0 {
		t.Errorf("the health check is %+v", h)
	}
	if _, ok := c.Volumes["/data"]; !ok || len(c.Volumes) != 1 {
		t.Errorf("the volumes are %v", c.Volumes)
	}
	for _, port := range []string{"8080/tcp", "8081/tcp"} {
		if _, ok := c.ExposedPorts[port]; !ok || len(c.ExposedPorts) != 2 {
			t.Errorf("the ports are %v", c.ExposedPorts)
		}
	}
	const label = "org.opencontainers.image."
	for name, want := range map[string]string{
		"version": "1.2.3", "revision": "abc", "licenses": "Apache-2.0", "title": "Dispatcher",
	} {
		if c.Labels[label+name] != want {
			t.Errorf("the label %s is %q, want %q", name, c.Labels[label+name], want)
		}
	}
	for _, name := range []string{"description", "source"} {
		if c.Labels[label+name] == "" {
			t.Errorf("no label %s", name)
		}
	}
}

// TestLastStage checks what no configuration shows: the last stage runs nothing, because it has no shell, and
// what the program may write belongs to its user.
func TestLastStage(t *testing.T) {
	var owned, copied []string
	for _, command := range lastStage(t) {
		switch c := command.(type) {
		case *instructions.RunCommand, *instructions.AddCommand, *instructions.ShellCommand:
			t.Errorf("the last stage has %s", c.Name())
		case *instructions.CopyCommand:
			copied = append(copied, c.DestPath)
			if c.Chown != "" {
				owned = append(owned, c.DestPath+" "+c.Chown)
			}
		}
	}
	if !slices.Equal(owned, []string{"/data 65532:65532"}) || !slices.Contains(copied, "/dispatcher") {
		t.Errorf("it copies %q; %q belong to users", copied, owned)
	}
}

// lastStage returns the commands of the last stage of the Dockerfile.
func lastStage(t *testing.T) []instructions.Command {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(string(dockerfile(t))))
	if err != nil {
		t.Fatal(err)
	}
	stages, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{Warn: ignore}))
	if err != nil {
		t.Fatal(err)
	}
	return stages[len(stages)-1].Commands
}

func ignore(string, string, string, string, []parser.Range) {}
