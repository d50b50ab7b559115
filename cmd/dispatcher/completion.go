package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints a script that lets a shell complete commands and flags.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" placeholder:"SHELL" help:"bash, zsh or fish."`
}

// Help is what completion --help says.
func (*completionCommand) Help() string {
	return "bash: source <(dispatcher completion bash), in ~/.bashrc for good. zsh: source <(dispatcher completion zsh), in ~/.zshrc after compinit. " +
		"fish: dispatcher completion fish > ~/.config/fish/completions/dispatcher.fish."
}

// Run writes the script, which is made from the grammar itself.
func (cmd *completionCommand) Run(parsed *kong.Context, c *console) error {
	nodes := commandNodes(parsed.Model.Node, nil)
	var b strings.Builder
	switch cmd.Shell {
	case "fish":
		writeFish(&b, nodes)
	case "zsh":
		b.WriteString("autoload -U +X bashcompinit && bashcompinit\n")
		writeBash(&b, nodes)
	default:
		writeBash(&b, nodes)
	}
	if _, err := io.WriteString(c.out, b.String()); err != nil {
		return fmt.Errorf("write the script: %w", err)
	}
	return nil
}

// A commandNode is one command with the words that lead to it.
type commandNode struct {
	path []string
	node *kong.Node
}

// commandNodes lists a command and all below it.
func commandNodes(n *kong.Node, path []string) []commandNode {
	list := []commandNode{{path, n}}
	for _, child := range n.Children {
		if !child.Hidden {
			list = append(list, commandNodes(child, append(path[:len(path):len(path)], child.Name))...)
		}
	}
	return list
}

// children are the commands below the command that people are meant to know.
func (n *commandNode) children() []*kong.Node {
	return slices.DeleteFunc(slices.Clone(n.node.Children), func(child *kong.Node) bool { return child.Hidden })
}

// words are what may follow the command: its commands, or its flags, and the values of an argument that has few.
func (n *commandNode) words() []string {
	var words []string
	for _, child := range n.children() {
		words = append(words, child.Name)
	}
	for _, p := range n.node.Positional {
		words = append(words, p.EnumSlice()...)
	}
	for _, flag := range n.node.Flags {
		words = append(words, "--"+flag.Name)
	}
	return words
}

func writeBash(b *strings.Builder, nodes []commandNode) {
	b.WriteString("_dispatcher() {\n  local word path= i\n  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=${COMP_WORDS[i]}\n    case \"$path/$word\" in\n")
	var paths []string
	for _, n := range nodes[1:] {
		paths = append(paths, "/"+strings.Join(n.path, "/"))
	}
	fmt.Fprintf(b, "      %s) path=$path/$word ;;\n    esac\n  done\n  case \"$path\" in\n", strings.Join(paths, "|"))
	for _, n := range nodes {
		path := ""
		if len(n.path) > 0 {
			path = "/" + strings.Join(n.path, "/")
		}
		fmt.Fprintf(b, "    %q) COMPREPLY=($(compgen -W %q -- \"${COMP_WORDS[COMP_CWORD]}\")) ;;\n", path, strings.Join(n.words(), " "))
	}
	b.WriteString("  esac\n}\ncomplete -o default -F _dispatcher dispatcher\n")
}

func writeFish(b *strings.Builder, nodes []commandNode) {
	quoted := func(s string) string {
		first, _, _ := strings.Cut(s, ". ")
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(first) + "'"
	}
	for _, n := range nodes {
		when := "__fish_use_subcommand"
		if len(n.path) > 0 {
			when = "__fish_seen_subcommand_from " + n.path[len(n.path)-1]
			if len(n.path) > 1 {
				when = "__fish_seen_subcommand_from " + n.path[0] + "; and " + when
			}
		}
		for _, child := range n.children() {
			fmt.Fprintf(b, "complete -c dispatcher -f -n %s -a %s -d %s\n", quoted(when), child.Name, quoted(child.Help))
		}
		for _, p := range n.node.Positional {
			if values := p.EnumSlice(); len(values) > 0 {
				fmt.Fprintf(b, "complete -c dispatcher -f -n %s -a %s\n", quoted(when), quoted(strings.Join(values, " ")))
			}
		}
		for _, flag := range n.node.Flags {
			argument := " -r"
			if flag.IsBool() || flag.Name == "help" {
				argument = ""
			}
			fmt.Fprintf(b, "complete -c dispatcher -n %s -l %s%s -d %s\n", quoted(when), flag.Name, argument, quoted(flag.Help))
		}
	}
}
