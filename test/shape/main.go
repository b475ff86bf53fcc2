package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "list the upward arrows of each package")
	least := flag.Int("files", 0, "leave out packages with fewer files")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	if err := run(os.Stdout, patterns, *least, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "shape:", err)
		os.Exit(1) //nolint:forbidigo // the only exit of the command
	}
}

// listed is what go list says of a package.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool
	Error                   *struct{ Err string }
}

func run(w io.Writer, patterns []string, least int, verbose bool) error {
	packages, err := list(patterns)
	if err != nil {
		return err
	}
	exports := make(map[string]string, len(packages))
	for i := range packages {
		exports[packages[i].ImportPath] = packages[i].Export
	}
	fmt.Fprintf(w, "%-45s %5s %6s %6s %5s  %5s %6s  %s\n", "package", "files", "arrows", "upward", "", "lines", "median", "most methods")
	for i := range packages {
		p := &packages[i]
		if p.DepOnly || len(p.GoFiles) < max(1, least) {
			continue
		}
		s, err := measure(p, exports)
		if err != nil {
			return fmt.Errorf("measure %s: %w", p.ImportPath, err)
		}
		s.print(w, p.ImportPath, verbose)
	}
	return nil
}

// list runs go list, which also compiles what the packages import.
func list(patterns []string) ([]listed, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly,Error"}, patterns...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.Bytes())
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode the output of go list: %w", err)
		}
		if p.Error != nil {
			return nil, fmt.Errorf("load %s: %s", p.ImportPath, p.Error.Err)
		}
		packages = append(packages, p)
	}
}

// shape is what is measured of a package.
type shape struct {
	files    []string       // in the order with the fewest upward arrows, lowest first
	lines    []int          // by file, sorted
	arrows   int            // all
	upward   [][2]string    // from, to
	receiver string         // of the most methods
	methods  map[string]int // by receiver
}

func measure(p *listed, exports map[string]string) (*shape, error) {
	fset := token.NewFileSet()
	files := make([]*ast.File, 0, len(p.GoFiles))
	s := &shape{methods: make(map[string]int)}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		s.lines = append(s.lines, fset.File(file.FileStart).LineCount())
		s.countMethods(file)
	}
	slices.Sort(s.lines)
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	checked, err := config.Check(p.ImportPath, fset, files, info)
	if err != nil {
		return nil, err
	}
	at := make(map[string]int, len(files))
	for i, name := range p.GoFiles {
		at[name] = i
	}
	uses := make([][]bool, len(files))
	for i := range uses {
		uses[i] = make([]bool, len(files))
	}
	for ident, object := range info.Uses {
		if object.Pkg() != checked || isLocal(object) {
			continue
		}
		from, to := at[filepath.Base(fset.Position(ident.Pos()).Filename)], at[filepath.Base(fset.Position(object.Pos()).Filename)]
		if from != to {
			uses[from][to] = true
		}
	}
	s.order(p.GoFiles, uses)
	return s, nil
}

// isLocal reports whether an object is declared within a function; all such uses are in its own file.
func isLocal(object types.Object) bool {
	scope := object.Parent()
	return scope != nil && scope != object.Pkg().Scope()
}

func (s *shape) countMethods(file *ast.File) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		of := f.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if index, ok := of.(*ast.IndexExpr); ok {
			of = index.X
		}
		if name, ok := of.(*ast.Ident); ok {
			s.methods[name.Name]++
			if s.receiver == "" || s.methods[name.Name] > s.methods[s.receiver] {
				s.receiver = name.Name
			}
		}
	}
}

// order looks for the order of files with the fewest upward arrows. The problem is NP-hard (minimum
// feedback arc set). It starts from the order by the balance of arrows, and moves single files to their
// best place until no move helps, which for packages of this size is close to the optimum.
func (s *shape) order(names []string, uses [][]bool) {
	n := len(names)
	order := make([]int, n)
	balance := make([]int, n)
	for i := range n {
		order[i] = i
		for j := range n {
			if uses[i][j] {
				s.arrows++
				balance[i]++
				balance[j]--
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(balance[a], balance[b]) })
	for improved := true; improved; {
		improved = false
		for i := range n {
			improved = moveToBestPlace(order, i, uses) || improved
		}
	}
	for i, from := range order {
		s.files = append(s.files, names[from])
		for _, to := range order[i+1:] {
			if uses[from][to] {
				s.upward = append(s.upward, [2]string{names[from], names[to]})
			}
		}
	}
}

// moveToBestPlace moves the file at place i to where the fewest arrows point up, and reports whether
// that is fewer than before.
func moveToBestPlace(order []int, i int, uses [][]bool) bool {
	file := order[i]
	best, at := 0, i
	step := func(cost, place, other int, down bool) int {
		// Passing other upward turns its arrow to file up, and that of file to other down.
		gain := 0
		if uses[file][other] {
			gain++
		}
		if uses[other][file] {
			gain--
		}
		if down {
			gain = -gain
		}
		if cost -= gain; cost < best {
			best, at = cost, place
		}
		return cost
	}
	for place, cost := i+1, 0; place < len(order); place++ {
		cost = step(cost, place, order[place], false)
	}
	for place, cost := i-1, 0; place >= 0; place-- {
		cost = step(cost, place, order[place], true)
	}
	if at == i {
		return false
	}
	moved := slices.Insert(slices.Delete(slices.Clone(order), i, i+1), at, file)
	copy(order, moved)
	return true
}

func (s *shape) print(w io.Writer, path string, verbose bool) {
	share := 0
	if s.arrows > 0 {
		share = 100 * len(s.upward) / s.arrows
	}
	most := ""
	if s.receiver != "" {
		most = fmt.Sprintf("%s %d", s.receiver, s.methods[s.receiver])
	}
	path = strings.TrimPrefix(path, "github.com/peeklock/peeklock/")
	fmt.Fprintf(w, "%-45s %5d %6d %6d %4d%%  %5d %6d  %s\n", path, len(s.files), s.arrows, len(s.upward), share, s.lines[len(s.lines)-1], s.lines[len(s.lines)/2], most)
	if !verbose {
		return
	}
	for _, arrow := range s.upward {
		fmt.Fprintf(w, "    %s -> %s\n", arrow[0], arrow[1])
	}
}
