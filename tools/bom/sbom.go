package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A part is a module of the binary, with its checksum as in go.sum.
type part struct {
	module
	sum string
}

// partsOf are the modules of the binary and the standard library, by path.
func partsOf(info *buildinfo.BuildInfo, modules map[string]module) ([]part, error) {
	root, err := goTool(".", nil, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	ids, texts, err := licencesIn(strings.TrimSpace(string(root)))
	if err != nil {
		return nil, fmt.Errorf("the standard library: %w", err)
	}
	parts := []part{{module: module{"std", strings.TrimPrefix(info.GoVersion, "go"), ids, texts}}}
	for _, dep := range info.Deps {
		used := dep
		if dep.Replace != nil {
			used = dep.Replace
		}
		m, ok := modules[dep.Path]
		if !ok || m.version != used.Version {
			return nil, fmt.Errorf("the binary has %s %s, go.mod has %q: build it anew", dep.Path,
				used.Version, m.version)
		}
		parts = append(parts, part{m, used.Sum})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.path, b.path) })
	return parts, nil
}

// The types below are what this document uses of CycloneDX 1.6.
type (
	bom struct {
		Format      string      `json:"bomFormat"`
		SpecVersion string      `json:"specVersion"`
		Version     int         `json:"version"`
		Metadata    metadata    `json:"metadata"`
		Components  []component `json:"components"`
		Depends     []depends   `json:"dependencies"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licences   []licence  `json:"licenses,omitempty"`
		PURL       string     `json:"purl"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	licence struct {
		Licence struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	depends struct {
		Ref string   `json:"ref"`
		On  []string `json:"dependsOn"`
	}
)

// cyclonedx describes the binary: its modules with checksums and licences, and the settings of its build.
func cyclonedx(info *buildinfo.BuildInfo, version string, parts []part) ([]byte, error) {
	program := component{
		Type: "application", Name: filepath.Base(info.Path), Version: version,
		Licences: licences([]string{"Apache-2.0"}),
	}
	program.PURL = "pkg:golang/" + info.Main.Path + "@" + version + "#" + strings.TrimPrefix(info.Path,
		info.Main.Path+"/")
	program.Ref = program.PURL
	for _, s := range info.Settings {
		program.Properties = append(program.Properties, property{"go:build:" + s.Key, s.Value})
	}
	document := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{program}}
	on := depends{Ref: program.Ref}
	for _, p := range parts {
		c := component{Type: "library", Name: p.path, Version: p.version, Licences: licences(p.ids)}
		c.PURL = "pkg:golang/" + p.path + "@" + p.version
		c.Ref = c.PURL
		if p.sum != "" {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.sum, "h1:"))
			if err != nil {
				return nil, fmt.Errorf("%s: checksum %q: %w", p.path, p.sum, err)
			}
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(raw)}}
		}
		document.Components = append(document.Components, c)
		on.On = append(on.On, c.Ref)
	}
	document.Depends = []depends{on}
	out, err := json.MarshalIndent(document, "", "  ")
	return append(out, '\n'), err
}

func licences(ids []string) (list []licence) {
	for _, id := range ids {
		var l licence
		l.Licence.ID = id
		list = append(list, l)
	}
	return list
}

// allTexts joins the licence files of all parts, each under the name of its module.
func allTexts(parts []part) []byte {
	var all bytes.Buffer
	for _, p := range parts {
		for _, t := range p.texts {
			fmt.Fprintf(&all, "==== %s %s: %s ====\n\n%s\n\n", p.path, p.version, t.name,
				bytes.TrimSpace(t.data))
		}
	}
	return all.Bytes()
}
