// The door into MindSpore's compiler. MindSpore hands every graph that it compiles to this pass, whole, differentiated and
// inlined. Python (hook.py) gets it as MindIR bytes without the data of its parameters, and the script's Parameters. What
// comes back replaces the graph: MindIR bytes whose last inputs are the states, their names, and the Parameters that are new.
// There are no passes here.
#define PY_SSIZE_T_CLEAN
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "pybind11/pybind11.h"
#include "mindspore/include/custom_pass_api.h"
#include "mindspore/ccsrc/include/utils/tensor_py.h"
#include "mindspore/ccsrc/include/utils/tensor_py_wrapper.h"
#include "mindspore/core/include/ir/func_graph.h"
#include "mindspore/core/include/ir/func_graph_cloner.h"
#include "mindspore/core/include/ir/graph_utils.h"
#include "mindspore/core/include/ir/manager.h"
#include "mindspore/core/include/load_mindir/load_model.h"

namespace py = pybind11;

namespace mindspore {
std::string GetBinaryProtoString(const FuncGraphPtr &graph, const bool &incremental);  // the wheel has no header of it

namespace opt {
namespace {
constexpr char kHook[] = "boost_compile.runtime.in_compiler.hook";

// The Parameters of a graph by name: those of the script themselves.
py::dict Parameters(const FuncGraphPtr &graph) {
  py::dict parameters;
  for (const auto &node : graph->parameters()) {
    auto parameter = node->cast<ParameterPtr>();
    if (parameter->has_default()) {
      parameters[py::str(parameter->name())] = tensor::GetTensorPyFromValue(parameter->default_param_raw());
    }
  }
  return parameters;
}

// What the rewritten graph takes: inputs by their place, states by their name. New states become parameters of the graph.
AnfNodePtrList Arguments(const FuncGraphPtr &graph, const FuncGraphPtr &rewritten, const py::list &states,
                         const py::dict &added) {
  std::map<std::string, AnfNodePtr> known;
  AnfNodePtrList arguments;
  for (const auto &node : graph->parameters()) {
    auto parameter = node->cast<ParameterPtr>();
    if (parameter->has_default()) {
      known[parameter->name()] = parameter;
    } else {
      arguments.push_back(parameter);
    }
  }
  if (arguments.size() + states.size() != rewritten->parameters().size()) {
    throw std::runtime_error("the rewritten step takes " + std::to_string(rewritten->parameters().size()) +
                             " values, but the step has " + std::to_string(arguments.size()) + " inputs and " +
                             std::to_string(states.size()) + " states");
  }
  for (const auto &item : states) {
    auto name = item.cast<std::string>();
    auto found = known.find(name);
    if (found != known.end()) {
      arguments.push_back(found->second);
      continue;
    }
    if (!added.contains(item)) {
      throw std::runtime_error("the rewritten step uses the state '" + name + "', which nothing holds");
    }
    auto value = tensor::IsTensorPy(added[item]) ? tensor::ConvertToTensorPyWrapper(added[item]) : nullptr;
    if (value == nullptr) {
      throw std::runtime_error("the new state '" + name + "' is not a Parameter");
    }
    auto parameter = graph->AddFvParameter(name, value);
    parameter->set_abstract(value->ToAbstract());
    arguments.push_back(parameter);
  }
  return arguments;
}
}  // namespace

class Rewrite : public Pass {
 public:
  explicit Rewrite(const std::string &name) : Pass(name) {}

  bool Run(const FuncGraphPtr &graph) override {
    py::gil_scoped_acquire gil;
    auto hook = py::module_::import(kHook);
    if (!hook.attr("is_listening")().cast<bool>()) {
      return false;
    }
    auto bytes = GetBinaryProtoString(graph, false);
    auto result = hook.attr("rewrite")(py::bytes(bytes), Parameters(graph));  // an exception of Python goes through
    if (result.is_none()) {
      return false;  // nothing for us: the graph stays as it is
    }
    auto parts = result.cast<py::tuple>();
    auto rewritten = parts[0].cast<std::string>();
    auto loaded = MindIRLoader().LoadMindIR(rewritten.data(), rewritten.size());
    if (loaded == nullptr) {
      throw std::runtime_error("MindSpore cannot load the rewritten step");
    }
    auto arguments = Arguments(graph, loaded, parts[1], parts[2]);
    graph->manager()->Replace(graph->output(), InlineClone(loaded, graph, arguments, nullptr));
    loaded_.push_back(loaded);  // the clone refers to its functions
    return true;
  }

 private:
  std::vector<FuncGraphPtr> loaded_;
};

class Bridge : public CustomPassPlugin {
 public:
  std::string GetPluginName() const override { return "boost-compile"; }
  std::vector<std::string> GetAvailablePassNames() const override { return {"boost-compile"}; }
  std::shared_ptr<Pass> CreatePass(const std::string &name) const override { return std::make_shared<Rewrite>(name); }
};
}  // namespace opt
}  // namespace mindspore

using mindspore::opt::Bridge;
EXPORT_CUSTOM_PASS_PLUGIN(Bridge)
