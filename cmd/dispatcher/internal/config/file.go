package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// configVariable is the environment variable with the path of the settings file.
const configVariable = EnvPrefix + "CONFIG"

// readSettingsFile reads the file that --config or DISPATCHER_CONFIG names. Without one it returns nothing.
// It takes values as written and ignores their YAML types, so that 0755 and 1e3 mean the same as in a flag.
func readSettingsFile(c *console.Console, flags *Flags) (map[string]raw, []problem) {
	path := c.Lookup(configVariable)
	if flags.File.given {
		path = flags.File.values[len(flags.File.values)-1]
	}
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		var cause *os.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		message := fmt.Sprintf("cannot read the settings file %s: %s", path, err)
		return nil, []problem{{message: message, complete: true}}
	}
	return parseSettings(filepath.Base(path), content)
}

// parseSettings reads one YAML mapping of keys to scalars or to lists of scalars.
func parseSettings(name string, content []byte) (map[string]raw, []problem) {
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		message := fmt.Sprintf("%s is not YAML: %s", name, yamlCause(err))
		return nil, []problem{{message: message, complete: true}}
	}
	var entries []*ast.MappingValueNode
	for _, doc := range file.Docs {
		switch body := doc.Body.(type) {
		case nil, *ast.NullNode, *ast.CommentGroupNode:
		case *ast.MappingNode:
			entries = append(entries, body.Values...)
		case *ast.MappingValueNode:
			entries = append(entries, body)
		default:
			message := name + " is not a list of settings of the form \"key: value\""
			return nil, []problem{{message: message, complete: true}}
		}
	}
	keys := make([]string, 0, len(entries))
	known := map[string]setting{}
	for _, s := range catalogue() {
		known[s.key] = s
		keys = append(keys, s.key)
	}
	values := map[string]raw{}
	var problems []problem
	for _, entry := range entries {
		key := entry.Key.String()
		if token := entry.Key.GetToken(); token != nil {
			key = token.Value
		}
		where := fmt.Sprintf("%s:%d", name, line(entry))
		s, ok := known[key]
		if !ok {
			problems = append(problems, problem{message: unknownKey(where, key, keys), complete: true})
			continue
		}
		if _, twice := values[key]; twice {
			problems = append(problems, problem{key: key,
				message: fmt.Sprintf("%s: %s is set twice", where, key), complete: true})
			continue
		}
		list, err := texts(entry.Value, s)
		if err != nil {
			problems = append(problems, problem{key: key, message: fmt.Sprintf("%s: %s %s", where, key, err),
				complete: true})
			continue
		}
		if list != nil {
			_, sequence := entry.Value.(*ast.SequenceNode)
			values[key] = raw{values: list, split: !sequence, origin: "file " + where}
		}
	}
	return values, problems
}

// line returns the line number of an entry, or 0 if it is not known.
func line(entry *ast.MappingValueNode) int {
	if token := entry.Key.GetToken(); token != nil && token.Position != nil {
		return token.Position.Line
	}
	return 0
}

func unknownKey(where, key string, known []string) string {
	message := fmt.Sprintf("%s: unknown setting %q", where, key)
	if best := nearest(strings.ReplaceAll(strings.ToLower(key), "-", "_"), known); best != "" {
		message += "; did you mean " + best + "?"
	}
	return message
}

// texts returns the texts of a setting's value. A setting of JSON may be a list or a mapping in YAML.
func texts(node ast.Node, s setting) ([]string, error) {
	switch node.(type) {
	case *ast.SequenceNode, *ast.MappingNode, *ast.MappingValueNode:
		if !s.json {
			break
		}
		var value any
		err := yaml.NodeToValue(node, &value)
		var text []byte
		if err == nil {
			text, err = json.Marshal(value)
		}
		if err != nil {
			return nil, errors.New("cannot be written as JSON")
		}
		return []string{string(text)}, nil
	}
	return scalars(node, s.isList())
}

// scalars returns the texts of a YAML value: one for a scalar, the elements of a list, or nil for null. list
// says whether the setting accepts a list.
func scalars(node ast.Node, list bool) ([]string, error) {
	switch n := node.(type) {
	case *ast.NullNode:
		return nil, nil
	case *ast.StringNode:
		return []string{n.Value}, nil
	case *ast.LiteralNode:
		return []string{strings.TrimRight(n.Value.Value, "\n")}, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return []string{n.GetToken().Value}, nil
	case *ast.SequenceNode:
		if !list {
			return nil, errors.New("takes one value, not a list")
		}
		all := []string{}
		for _, element := range n.Values {
			one, err := scalars(element, false)
			if err != nil {
				return nil, err
			}
			all = append(all, one...)
		}
		return all, nil
	}
	if list {
		return nil, errors.New("takes a list of plain values")
	}
	return nil, errors.New("takes one plain value")
}

// yamlCause returns the first line of a parser's error. It drops the excerpt of the file, which may contain a
// secret.
func yamlCause(err error) string {
	var syntax yaml.Error
	if errors.As(err, &syntax) {
		if token := syntax.GetToken(); token != nil && token.Position != nil {
			return fmt.Sprintf("line %d: %s", token.Position.Line, syntax.GetMessage())
		}
		return syntax.GetMessage()
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}
